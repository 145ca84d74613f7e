package watcher

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/manifests"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The helpers below are those of watchertest, which imports this package.

func newPod(name, image string, o manifests.Origin) *manifests.Pod {
	return &manifests.Pod{
		Object: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}},
		},
		Origin: o,
	}
}

// content prints the pods of a set as "name=image@file", in their order.
func content(pods []*manifests.Pod) string {
	var all []string
	for _, p := range pods {
		all = append(all, fmt.Sprintf("%s=%s@%s", p.Object.Name, p.Object.Spec.Containers[0].Image, filepath.Base(p.Origin.File)))
	}
	return strings.Join(all, " ")
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
