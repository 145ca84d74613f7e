// Package e2e tests the monopod binary as users run it: real containerd, shim, runc, CNI and kernel, as root.
//
// Each test has an instance of its own (directories, subnet, cgroup root), so that they do not meet. The
// tests build the binaries once, with the race detector, and kill only processes they started. They are
// behind the build tag e2e: `go test -tags e2e ./e2e`.
package e2e
