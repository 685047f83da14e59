// Package kafka runs forebay's driver for Kafka against Apache Kafka 4.1.0 in KRaft mode on
// loopback, with one broker and with three.
//
// The brokers need Java 17 or newer. Their jars are downloaded once from Maven Central, as pom.xml
// lists them, and stored in the directory forebay of the user's cache (43 MB):
//
//	mvn -B dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=$HOME/.cache/forebay/kafka-4.1.0
//
// With FOREBAY_KAFKA_BUILD=1 the tests download them. FOREBAY_KAFKA_JARS names another directory.
// Without Java or the jars, the tests are skipped with a message. `make integration-all` runs them;
// `make integration` does not, because they are slow. BenchmarkStored compares the driver with
// franz-go alone:
//
//	go test -run '^$' -bench Stored -benchtime 1000000x
package kafka
