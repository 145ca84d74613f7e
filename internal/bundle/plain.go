//go:build !bundle

package bundle

func carried() parcel { return parcel{} }
