package plan

import (
	"monopod/manifests"
	"monopod/runner"
)

// ranWith reports whether an instance was created from the images whose digests the manifest specifies, as far as is known.
func ranWith(pod *manifests.Pod, c *runner.Container) bool {
	if len(pod.Images) == 0 {
		return true
	}
	same := func(key, digest string) bool {
		want := pod.Images[key]
		return want == "" || digest == "" || want == digest
	}
	for volume, digest := range c.VolumeImages {
		if !same(manifests.ImageVolume(volume), digest) {
			return false
		}
	}
	return same(c.Name, c.ImageDigest)
}
