// Package imagetest runs image stores of end-to-end tests, each on an embedded containerd of its own. Tests of runner/ctrd/image and of
// the packages below it share it.
//
// It must not test anything. For tests only; all of it has the build tag e2e.
package imagetest
