// Package netbed runs pod networks of end-to-end tests, in network and mount namespaces of their own, with network namespaces as pods and
// a machine outside. Tests of runner/ctrd/network and of the packages below it share it.
//
// It must not test anything. For tests only; all of it has the build tag e2e.
package netbed
