// Package examples holds manifests ready to run. Its tests load, validate and plan each of them.
package examples
