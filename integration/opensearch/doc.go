// Package opensearch runs forebay's output for Elasticsearch and OpenSearch against a node of
// OpenSearch 2.19.6 on loopback.
//
// The node needs JDK 17 or newer. Its jars are downloaded once from Maven Central, as pom.xml lists
// them, and stored in the directory forebay of the user's cache (45 MB):
//
//	mvn -B dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=$HOME/.cache/forebay/opensearch-2.19.6
//
// With FOREBAY_OPENSEARCH_BUILD=1 the tests download them. FOREBAY_OPENSEARCH_JARS names another
// directory. Without Java or the jars, the tests are skipped with a message. `make integration-all`
// runs them; `make integration` does not, because they are slow. The node has neither plugins nor
// security. Users and TLS are tested elsewhere with test servers.
package opensearch
