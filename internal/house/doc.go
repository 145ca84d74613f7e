// Package house holds the tests that keep the rules of the house: which package may import which, that each
// package says what it owns, that what the docs tell people to type works. It has no code of its own.
package house
