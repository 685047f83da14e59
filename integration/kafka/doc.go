// Package kafka runs forebay's driver of Kafka against Apache Kafka 4.1.0 in KRaft mode: one
// broker and three, on loopback.
//
// The brokers need a Java 17 or newer. Their jars come from Maven Central by the pom.xml here,
// once, into the directory forebay of the user's cache (43 MB):
//
//	mvn -B dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=$HOME/.cache/forebay/kafka-4.1.0
//
// With FOREBAY_KAFKA_BUILD=1 the tests do that themselves; FOREBAY_KAFKA_JARS names another
// directory. Without Java or jars the tests are skipped, and say so. `make integration-all`
// runs them; `make integration` does not, for the sake of its time. BenchmarkStored puts the
// driver beside bare franz-go:
//
//	go test -run '^$' -bench Stored -benchtime 1000000x
package kafka
