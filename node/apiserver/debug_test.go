package apiserver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/node/apiserver/mirror"
)

func debugger(name, image string) corev1.EphemeralContainer {
	return corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name, Image: image}}
}

func TestEphemeralContainersOfBoundPodsAreAdded(t *testing.T) {
	there := with(bound("a", "yes"), func(p *corev1.Pod) {
		p.Spec.EphemeralContainers = []corev1.EphemeralContainer{debugger("has", "i"), debugger("new", "i"), debugger("later", "later"), debugger("never", "never"), debugger("was", "i")}
		p.Spec.EphemeralContainers[1].EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}}}}
		p.Status.EphemeralContainerStatuses = []corev1.ContainerStatus{{Name: "was", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}
	})
	if _, refs, _ := boundDocument(there); fmt.Sprint(refs) != "[secrets default/s]" {
		t.Errorf("what an ephemeral container refers to is fetched: %v", refs)
	}
	there.Spec.EphemeralContainers[1].EnvFrom = nil
	g := newGathering(t, there, with(bound("b", "yes"), func(p *corev1.Pod) { p.Spec.EphemeralContainers = []corev1.EphemeralContainer{debugger("x", "i")} }))
	var asked []string
	g.cfg.Debug = func(_ context.Context, p *corev1.Pod, e corev1.EphemeralContainer) error {
		asked = append(asked, p.Name+"/"+e.Name)
		switch e.Image {
		case "later":
			return errors.New("not now")
		case "never":
			return &RejectedError{mirror.ReasonNotSupported, "no such thing"}
		}
		return nil
	}
	here := with(running("a"), func(p *corev1.Pod) {
		p.Annotations = map[string]string{mirror.AnnotationSource: mirror.SourceName}
		p.Spec.EphemeralContainers, p.Status.StartTime = []corev1.EphemeralContainer{debugger("has", "i")}, nil
	})
	g.local.put(here)
	if pods, _, said := g.word(); pods != "a b" || len(asked) > 0 || len(said) > 0 || time.Until(g.next) > time.Minute/2 {
		t.Errorf("its sandbox is being made: %s, %q, %q, %v", pods, asked, said, g.next)
	}
	here = here.DeepCopy()
	here.Status.StartTime = &metav1.Time{Time: time.Unix(1, 0)}
	g.local.put(here)
	_, _, said := g.word()
	if fmt.Sprint(asked) != "[a/new a/later a/never]" || len(said) != 1 || !strings.Contains(said[0], "NotSupported a uid-of-a: ephemeral container never: no such thing") {
		t.Errorf("%q, %q", asked, said)
	}
	if why := g.store.undebuggedOf(here.UID); len(why) != 1 || !strings.Contains(why["never"], "no such thing") || time.Until(g.next) > time.Minute/2 {
		t.Errorf("%v, %v", why, g.next)
	}
	here = here.DeepCopy()
	here.Spec.EphemeralContainers = append(here.Spec.EphemeralContainers, debugger("new", "i"))
	g.local.put(here)
	asked = nil
	if _, _, said := g.word(); fmt.Sprint(asked) != "[a/later]" || len(said) > 0 {
		t.Errorf("again: %q, %q", asked, said)
	}
}
