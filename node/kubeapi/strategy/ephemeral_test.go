package strategy

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/manifests/defaults"
)

func debugger(name, image string) corev1.EphemeralContainer {
	return corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name, Image: image}}
}

// debugged is a pod as clients see it.
func debugged(all ...corev1.EphemeralContainer) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns", UID: "u", ResourceVersion: "7"}}
	pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	pod.Spec.EphemeralContainers = all
	defaults.Pod(pod)
	return pod
}

func TestEphemeralContainersAreOnlyAdded(t *testing.T) {
	t.Parallel()
	old := debugged(debugger("a", "i"))
	k := kindOf(t, old)
	for name, c := range map[string]struct {
		sent  []corev1.EphemeralContainer
		added []string
		text  string
	}{
		"nothing":       {[]corev1.EphemeralContainer{debugger("a", "i")}, nil, ""},
		"one":           {[]corev1.EphemeralContainer{debugger("b", "i"), debugger("a", "i")}, []string{"b"}, ""},
		"a removal":     {[]corev1.EphemeralContainer{debugger("b", "i")}, nil, `existing ephemeral containers "a" may not be removed`},
		"a change":      {[]corev1.EphemeralContainer{debugger("a", "other")}, nil, `existing ephemeral containers "a" may not be changed`},
		"all of them":   {nil, nil, `may not be removed`},
		"two of a name": {[]corev1.EphemeralContainer{debugger("a", "i"), debugger("b", "1"), debugger("b", "2")}, []string{"b", "b"}, ""}, // refused later
	} {
		now := debugged(c.sent...)
		now.Spec.Hostname, now.Labels, now.ResourceVersion = "other", map[string]string{"a": "b"}, "6"
		added, err := EphemeralContainers(k, old, now)
		if c.text != "" {
			is(t, err, 422, c.text)
			continue
		}
		if err != nil || !slices.Equal(added, c.added) {
			t.Errorf("%s: %v, %v", name, added, err)
		}
		if now.Spec.Hostname != "" || now.Labels != nil || now.ResourceVersion != "6" {
			t.Errorf("%s: all but the ephemeral containers and the precondition stays: %+v", name, now)
		}
		if now.Generation != old.Generation+int64(len(added)) {
			t.Errorf("%s: generation %d", name, now.Generation)
		}
		for _, e := range now.Spec.EphemeralContainers {
			if e.ImagePullPolicy == "" {
				t.Errorf("%s: %s has no defaults", name, e.Name)
			}
		}
	}
}

func TestOtherWritesKeepEphemeralContainers(t *testing.T) {
	t.Parallel()
	old := debugged(debugger("a", "i"))
	k := kindOf(t, old)
	for name, sub := range map[string]string{"replace": "", "status": "status", "resize": "resize"} {
		now := debugged()
		if err := Update(k, sub, old, now); err != nil || len(now.Spec.EphemeralContainers) != 1 {
			t.Errorf("%s: %v, %+v", name, err, now.Spec.EphemeralContainers)
		}
	}
	is(t, Update(k, "", old, debugged(debugger("b", "i"))), 422, "can only be added through pods/ephemeralcontainers")
	if now := debugged(debugger("a", "i")); Update(k, "", old, now) != nil || !Same(old, now) {
		t.Errorf("a write of what was read changes something: %+v", now)
	}
}
