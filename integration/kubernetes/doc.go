// Package kubernetes checks deploy/kubernetes against the types of the Kubernetes API. It is a
// separate module, so that no other module depends on these types.
package kubernetes
