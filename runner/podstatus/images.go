package podstatus

import (
	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/runner"
)

// imagesOf returns the digests of the images of a pod's containers, as in Status.Images.
func imagesOf(spec *corev1.PodSpec, all []runner.Container) map[string]string {
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
