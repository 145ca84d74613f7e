package cluster

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/node/apiserver"
)

func TestWhichEphemeralContainersABoundPodCanHave(t *testing.T) {
	l := newParts(t).link()
	l.policy.PodSecurity = "baseline"
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u"}, Spec: corev1.PodSpec{HostNetwork: true, Containers: []corev1.Container{{Name: "main", Image: "i"}}}}
	debugger := func(change func(*corev1.EphemeralContainer)) corev1.EphemeralContainer {
		e := corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: "debugger", Image: "i", TerminationMessagePolicy: corev1.TerminationMessageReadFile, ImagePullPolicy: corev1.PullAlways,
		}}
		change(&e)
		return e
	}
	for want, e := range map[string]corev1.EphemeralContainer{
		"not open":                 debugger(func(*corev1.EphemeralContainer) {}),
		"spec.ephemeralContainers": debugger(func(e *corev1.EphemeralContainer) { e.TargetContainerName = "none" }),
		"Duplicate value":          debugger(func(e *corev1.EphemeralContainer) { e.Name = "main" }),
		"must not set securityContext.privileged": debugger(func(e *corev1.EphemeralContainer) {
			e.SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
		}),
	} {
		err := l.debug(t.Context(), pod, e)
		_, never := errors.AsType[*apiserver.RejectedError](err)
		if err == nil || never == (want == "not open") || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "host namespaces") {
			t.Errorf("%s: %v", want, err)
		}
	}
	if len(pod.Spec.EphemeralContainers) > 0 {
		t.Error("the pod was changed")
	}
}
