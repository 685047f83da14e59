// Package kafka runs forebay's driver of Kafka against Apache Kafka 4.1.0 in KRaft mode: one
// broker and three, on loopback.
//
// The brokers need a Java 17 or newer. Their jars come from Maven Central by the pom.xml here,
// once, and are stored in the directory forebay of the user's cache (43 MB):
//
//	mvn -B dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=$HOME/.cache/forebay/kafka-4.1.0
//
// With FOREBAY_KAFKA_BUILD=1 the tests do that themselves; FOREBAY_KAFKA_JARS names another
// directory. Without Java or jars the tests are skipped with a message. `make integration-all`
// runs them; `make integration` does not, because they are slow. BenchmarkStored compares the
// driver with franz-go alone:
//
//	go test -run '^$' -bench Stored -benchtime 1000000x
package kafka
