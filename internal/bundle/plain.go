//go:build !bundle

package bundle

func embedded() (archive, text []byte) { return nil, nil }
