package netsink_test

import (
	"bufio"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/netsink"
)

// Records are sent as lines over TCP.
func ExampleTo() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()
	lines := make(chan string)
	go func() {
		defer close(lines)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		for s := bufio.NewScanner(c); s.Scan(); {
			lines <- s.Text()
		}
	}()
	log, err := forebay.New(netsink.To("tcp://"+l.Addr().String(),
		forebay.Configure(func(o *netsink.Config) { o.DialTimeout = time.Second }),
		forebay.Encoder(encode.JSON(&encode.Options{TimeKey: "-"}))))
	if err != nil {
		fmt.Println(err)
		return
	}
	log.Info("listening", slog.Int("port", 8080))
	fmt.Println(<-lines)
	fmt.Println(log.Close())
	// Output:
	// {"level":"INFO","msg":"listening","port":8080}
	// <nil>
}
