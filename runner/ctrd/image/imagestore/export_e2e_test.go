//go:build e2e

package imagestore

// PinName is pinName, for tests outside of this package.
func PinName(owner, dig string) string { return pinName(owner, dig) }
