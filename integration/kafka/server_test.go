//go:build linux

package kafka

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// name is the name of the directory for the jars in the user's cache. All checkouts share it.
const name = "kafka-4.1.0"

// jars returns the class path of a broker. If the jars are not available, it skips the test.
func jars(t testing.TB) string {
	t.Helper()
	if _, err := exec.LookPath("java"); err != nil {
		t.Skip("SKIPPED: no Java: ", err)
	}
	dir := os.Getenv("FOREBAY_KAFKA_JARS")
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			t.Skip("SKIPPED: no directory for the jars of Kafka: ", err)
		}
		dir = filepath.Join(cache, "forebay", name)
	}
	if _, err := os.Stat(dir); err != nil {
		if os.Getenv("FOREBAY_KAFKA_BUILD") == "" {
			t.Skipf("SKIPPED: there is no %s; FOREBAY_KAFKA_BUILD=1 downloads them with Maven", dir)
		}
		part := dir + ".part"
		cmd := exec.Command("mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory="+part)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Skipf("SKIPPED: the jars of Kafka cannot be downloaded: %v\n%.2000s", err, out)
		}
		if err := os.Rename(part, dir); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "*")
}

// Credentials of the only user.
const (
	user     = "ann"
	password = `s3cr%t/P4ssword`
)

// A cluster is a group of brokers. Each broker is also a controller.
type cluster struct {
	dir     string
	path    string // class path
	brokers []*broker
	admin   *kadm.Client
	client  *kgo.Client
}

// A broker is a process of Kafka. It can be killed and restarted.
type broker struct {
	c                *cluster
	id               int
	dir              string
	plain, tls, sasl int // ports
	cmd              *exec.Cmd
	mu               sync.Mutex
	logs             bytes.Buffer
}

func (b *broker) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.logs.Write(p)
}

// sharedClusters contains the running clusters by number of brokers. Tests share them, and TestMain
// stops them.
var sharedClusters = map[int]*cluster{}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, c := range sharedClusters {
		c.close()
	}
	os.Exit(code)
}

// brokers returns a cluster of n brokers. Tests share it and must undo their changes.
func brokers(t testing.TB, n int) *cluster {
	t.Helper()
	if c := sharedClusters[n]; c != nil {
		return c
	}
	path := jars(t)
	for k, c := range sharedClusters { // stop other clusters to save memory
		c.close()
		delete(sharedClusters, k)
	}
	dir, err := os.MkdirTemp("", "forebay-kafka")
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{dir: dir, path: path}
	sharedClusters[n] = c
	c.createKeyStore(t)
	ports := freePorts(t, 4*n)
	var voters []string
	for i := range n {
		voters = append(voters, fmt.Sprintf("%d@127.0.0.1:%d", i+1, ports[4*i+3]))
	}
	for i := range n {
		b := &broker{c: c, id: i + 1, dir: filepath.Join(dir, fmt.Sprint("node", i+1)), plain: ports[4*i], tls: ports[4*i+1], sasl: ports[4*i+2]}
		c.brokers = append(c.brokers, b)
		b.configure(t, voters, ports[4*i+3], n)
	}
	for _, b := range c.brokers {
		b.start(t)
	}
	c.client, err = kgo.NewClient(kgo.SeedBrokers(c.addrs()...), kgo.DisableClientMetrics(), kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	c.admin = kadm.NewClient(c.client)
	c.awaitReady(t)
	return c
}

// run runs a program, such as a tool of the JDK or a class of Kafka.
func run(t testing.TB, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%.4000s", name, err, out)
	}
}

// createKeyStore creates a key store with a certificate for 127.0.0.1, and writes the certificate
// to ca.pem.
func (c *cluster) createKeyStore(t testing.TB) {
	store := filepath.Join(c.dir, "keys.p12")
	run(t, "keytool", "-genkeypair", "-alias", "broker", "-keyalg", "EC", "-groupname", "secp256r1", "-dname", "CN=broker", "-validity", "2",
		"-ext", "SAN=ip:127.0.0.1", "-ext", "bc=ca:true", "-storetype", "PKCS12", "-keystore", store, "-storepass", "changeit")
	run(t, "keytool", "-exportcert", "-rfc", "-alias", "broker", "-keystore", store, "-storepass", "changeit", "-file", filepath.Join(c.dir, "ca.pem"))
}

// configure writes server.properties and formats the storage of the broker.
func (b *broker) configure(t testing.TB, voters []string, controller, n int) {
	t.Helper()
	if err := os.MkdirAll(b.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	scram := "org.apache.kafka.common.security.scram.ScramLoginModule required;"
	conf := []string{
		"process.roles=broker,controller",
		fmt.Sprint("node.id=", b.id),
		"controller.quorum.voters=" + strings.Join(voters, ","),
		fmt.Sprintf("listeners=PLAINTEXT://127.0.0.1:%d,SSL://127.0.0.1:%d,SASL_SSL://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d", b.plain, b.tls, b.sasl, controller),
		"controller.listener.names=CONTROLLER",
		"inter.broker.listener.name=PLAINTEXT",
		"listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL",
		"log.dirs=" + filepath.Join(b.dir, "data"),
		"auto.create.topics.enable=false",
		fmt.Sprintf("default.replication.factor=%d", n),
		fmt.Sprintf("min.insync.replicas=%d", min(n, 2)),
		fmt.Sprintf("offsets.topic.replication.factor=%d", n),
		fmt.Sprintf("transaction.state.log.replication.factor=%d", n),
		"broker.session.timeout.ms=6000",
		"broker.heartbeat.interval.ms=1000",
		"replica.lag.time.max.ms=6000",
		"num.network.threads=2",
		"num.io.threads=2",
		"log.cleaner.dedupe.buffer.size=20000000",
		"ssl.keystore.type=PKCS12",
		"ssl.keystore.location=" + filepath.Join(b.c.dir, "keys.p12"),
		"ssl.keystore.password=changeit",
		"sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
		fmt.Sprintf(`listener.name.sasl_ssl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_%s="%s";`, user, password),
		"listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config=" + scram,
		"listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=" + scram,
		"authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"super.users=User:ANONYMOUS",
		"allow.everyone.if.no.acl.found=true",
	}
	file := filepath.Join(b.dir, "server.properties")
	if err := os.WriteFile(file, []byte(strings.Join(conf, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, "java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", b.c.path, "kafka.tools.StorageTool", "format",
		"-t", "Zm9yZWJheS1rYWZrYS10ZQ", "-c", file,
		"--add-scram", fmt.Sprintf("SCRAM-SHA-256=[name=%s,password=%s]", user, password),
		"--add-scram", fmt.Sprintf("SCRAM-SHA-512=[name=%s,password=%s]", user, password))
}

// start starts the process of the broker.
func (b *broker) start(t testing.TB) {
	t.Helper()
	b.cmd = exec.Command("java", "-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", b.c.path, "kafka.Kafka", filepath.Join(b.dir, "server.properties"))
	b.cmd.Stdout, b.cmd.Stderr = b, b
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := b.cmd.Start(); err != nil {
		t.Fatalf("Kafka does not start: %v", err)
	}
}

// kill kills the process with SIGKILL, as the OOM killer does.
func (b *broker) kill() {
	if b.cmd != nil {
		_ = b.cmd.Process.Kill()
		_ = b.cmd.Wait()
		b.cmd = nil
	}
}

// pause stops the process with SIGSTOP, and its connections stay open. resume lets it continue.
func (b *broker) pause()  { _ = b.cmd.Process.Signal(syscall.SIGSTOP) }
func (b *broker) resume() { _ = b.cmd.Process.Signal(syscall.SIGCONT) }

func (c *cluster) close() {
	if c.client != nil {
		c.client.Close()
	}
	for _, b := range c.brokers {
		b.kill()
	}
	_ = os.RemoveAll(c.dir)
}

func (c *cluster) addrs() (all []string) {
	for _, b := range c.brokers {
		all = append(all, fmt.Sprint("127.0.0.1:", b.plain))
	}
	return all
}

// awaitReady waits until all brokers are running and all replicas of all partitions are in sync.
func (c *cluster) awaitReady(t testing.TB) {
	t.Helper()
	await(t, 2*time.Minute, "all brokers and replicas", func(ctx context.Context) error {
		m, err := c.admin.Metadata(ctx)
		if err != nil {
			return err
		}
		if len(m.Brokers) < len(c.brokers) {
			return fmt.Errorf("%d of %d brokers are running", len(m.Brokers), len(c.brokers))
		}
		for _, topic := range m.Topics {
			for _, p := range topic.Partitions {
				if p.Err != nil || p.Leader < 0 || len(p.ISR) < len(p.Replicas) {
					return fmt.Errorf("partition %d of %s: leader %d, %d of %d replicas in sync, %v", p.Partition, topic.Topic, p.Leader, len(p.ISR), len(p.Replicas), p.Err)
				}
			}
		}
		return nil
	})
}

// newTopic creates a topic named after the test, and waits until all brokers know it. conf contains
// names and values of topic settings, alternating.
func (c *cluster) newTopic(t *testing.T, partitions int, conf ...string) string {
	t.Helper()
	topic := strings.NewReplacer("/", ".", "#", ".").Replace(t.Name())
	c.createTopic(t, topic, partitions, conf...)
	return topic
}

func (c *cluster) createTopic(t testing.TB, topic string, partitions int, conf ...string) {
	t.Helper()
	m := map[string]*string{}
	for pair := range slices.Chunk(conf, 2) {
		m[pair[0]] = &pair[1]
	}
	await(t, time.Minute, "creating the topic", func(ctx context.Context) error {
		_, err := c.admin.CreateTopic(ctx, int32(partitions), -1, m, topic)
		return err
	})
	c.awaitReady(t)
}

// leader returns the broker that is the leader of a partition.
func (c *cluster) leader(t *testing.T, topic string, partition int32) (b *broker) {
	t.Helper()
	await(t, time.Minute, "a leader", func(ctx context.Context) error {
		m, err := c.admin.Metadata(ctx, topic)
		if err != nil {
			return err
		}
		id := m.Topics[topic].Partitions[partition].Leader
		if id < 1 || int(id) > len(c.brokers) {
			return fmt.Errorf("the leader is %d", id)
		}
		b = c.brokers[id-1]
		return nil
	})
	return b
}

// await calls the function do repeatedly until it succeeds. The parameter what describes the
// condition in the error.
func await(t testing.TB, timeout time.Duration, what string, do func(context.Context) error) {
	t.Helper()
	for end := time.Now().Add(timeout); ; time.Sleep(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		err := do(ctx)
		cancel()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			for _, c := range sharedClusters {
				for _, b := range c.brokers {
					b.mu.Lock()
					text := b.logs.Bytes()
					t.Logf("log of broker %d: %s", b.id, text[max(0, len(text)-3000):])
					b.mu.Unlock()
				}
			}
			t.Fatalf("timeout while waiting for: %s: %v", what, err)
		}
	}
}

func freePorts(t testing.TB, n int) (ports []int) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}
