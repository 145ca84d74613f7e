package decode

import (
	"fmt"
	"strings"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"

	"monopod/manifests/document"
)

// imageNames refuses names that no image can have: such a container would never start. The Kubernetes API accepts them, as that of a
// cluster does, and its pods report InvalidImageName; so do the pods of workloads, whose templates were checked here.
func (l *loader) imageNames(spec *corev1.PodSpec, it document.Item) []document.Problem {
	if l.author != AuthorUser || l.policy.Rejects {
		return nil
	}
	var found []document.Problem
	check := func(path, image string) {
		if image == "" || strings.TrimSpace(image) != image {
			return // which validation reports
		}
		if _, err := reference.ParseDockerRef(image); err != nil {
			found = append(found, document.Problem{
				Path: it.Path(path), Msg: fmt.Sprintf("%q is not an image name: %v", image, err), Hint: "write it as in docker.io/library/busybox:1.37",
			})
		}
	}
	for i := range spec.InitContainers {
		check(fmt.Sprintf("spec.initContainers[%d].image", i), spec.InitContainers[i].Image)
	}
	for i := range spec.Containers {
		check(fmt.Sprintf("spec.containers[%d].image", i), spec.Containers[i].Image)
	}
	for i := range spec.Volumes {
		if v := spec.Volumes[i].Image; v != nil {
			check(fmt.Sprintf("spec.volumes[%d].image.reference", i), v.Reference)
		}
	}
	return found
}
