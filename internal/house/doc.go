// Package house holds the tests of rules for the source code: which package may import which, that each package documents what it owns,
// that commands and options in the docs exist.
//
// It has no code of its own.
package house
