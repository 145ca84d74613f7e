package streams

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// defaultContainer is the annotation that names the container to use if a request names none.
const defaultContainer = "kubectl.kubernetes.io/default-container"

// containerOf returns the name of the requested container, or of the default one. The errors are those of Kubernetes.
func containerOf(pod *corev1.Pod, name string) (string, error) {
	all := names(pod)
	switch marked := pod.Annotations[defaultContainer]; {
	case name != "" && !slices.Contains(all, name):
		return "", apierrors.NewBadRequest(fmt.Sprintf("container %s is not valid for pod %s", name, pod.Name))
	case name != "":
		return name, nil
	case slices.Contains(all, marked):
		return marked, nil
	case len(pod.Spec.Containers) == 1:
		return pod.Spec.Containers[0].Name, nil
	}
	return "", apierrors.NewBadRequest(fmt.Sprintf("a container name must be specified for pod %s, choose one of: %s", pod.Name, all))
}

// names returns the names of all containers, in start order.
func names(pod *corev1.Pod) []string {
	var all []string
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		all = append(all, c.Name)
	}
	for _, c := range pod.Spec.EphemeralContainers {
		all = append(all, c.Name)
	}
	return all
}

// boolean parses a parameter like Kubernetes: true if present and neither false nor 0.
func boolean(q url.Values, name string) bool {
	if !q.Has(name) {
		return false
	}
	text := strings.ToLower(q.Get(name))
	return text != "false" && text != "0"
}
