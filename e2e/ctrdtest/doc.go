// Package ctrdtest runs the containerd runtime of end-to-end tests: in network and mount namespaces of their own, with directories,
// a cgroup and a subnet of their own for each test. Tests of runner/ctrd and of its parts share it.
//
// It must not test anything. For tests only; all of it has the build tag e2e.
package ctrdtest
