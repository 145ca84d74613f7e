package manifests

import "maps"

// ImageVolume is the key in Pod.Images of a volume that is an image. No container can have such a name.
func ImageVolume(volume string) string { return "volume/" + volume }

// SameImages reports whether two pods resolve their tags to the same digests.
func SameImages(a, b *Pod) bool { return maps.Equal(a.Images, b.Images) }
