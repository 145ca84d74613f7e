package offline

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWhichPodsANameMayMean(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-0", OwnerReferences: []metav1.OwnerReference{{Kind: "StatefulSet", Name: "web"}}}}
	for name, want := range map[string]bool{"web-0": true, "web": true, "other": false, "we": false, "": false} {
		if got := MayMean(pod, "default", name); got != want {
			t.Errorf("%q may mean it: %t", name, got)
		}
		if MayMean(pod, "elsewhere", name) {
			t.Errorf("%q in another namespace may mean it", name)
		}
	}
}
