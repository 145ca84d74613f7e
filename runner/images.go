package runner

import (
	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
)

// ranWith says that an instance was made from the images whose digests the manifest asks for, as far as is known.
func ranWith(pod *manifests.Pod, c *Container) bool {
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

// imagesOf are the digests of the images of a pod's containers, as PodStatus has them.
func imagesOf(spec *corev1.PodSpec, all []Container) map[string]string {
	images := map[string]string{}
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			c := shownInstance(all, list[i].Name)
			if c == nil || c.ImageDigest == "" {
				continue
			}
			images[c.Name] = c.ImageDigest
			for volume, digest := range c.VolumeImages {
				images[manifests.ImageVolume(volume)] = digest
			}
		}
	}
	return images
}
