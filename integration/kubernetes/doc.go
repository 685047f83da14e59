// Package kubernetes holds deploy/kubernetes against the types of the Kubernetes API. It is
// a module of its own, so that nobody else needs them.
package kubernetes
