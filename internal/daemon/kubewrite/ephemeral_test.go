package kubewrite

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/internal/model"
	"monopod/manifests"
	"monopod/manifests/defaults"
	"monopod/node/kubeapi"
	"monopod/runner"
	"monopod/runner/runtimetest"
)

// debugger is an ephemeral container.
func debugger(name string, edit func(*corev1.EphemeralContainer)) corev1.EphemeralContainer {
	e := corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon(runtimetest.NewContainer(name, runtimetest.ScriptServe))}
	if edit != nil {
		edit(&e)
	}
	return e
}

// adding returns a change that adds ephemeral containers to a pod.
func adding(pod *corev1.Pod, all ...corev1.EphemeralContainer) kubeapi.Change {
	e := &kubeapi.Ephemeral{Pod: pod.DeepCopy()}
	for _, c := range all {
		e.Added = append(e.Added, c.Name)
		e.Pod.Spec.EphemeralContainers = append(e.Pod.Spec.EphemeralContainers, c)
	}
	defaults.Pod(e.Pod)
	return kubeapi.Change{Ephemeral: e}
}

// manifest returns the stored document of a pod.
func (d *daemon) manifest(name string) string {
	d.t.Helper()
	data, err := os.ReadFile(d.store.Path(manifests.ObjectID{Kind: "Pod", Namespace: "default", Name: name}))
	if err != nil {
		d.t.Fatal(err)
	}
	return string(data)
}

func TestEphemeralContainersAreSeenBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d, _ := running(t, dir, model.Desired{})
		d.write(put(script("web", runtimetest.ScriptServe)))
		time.Sleep(10 * time.Second)
		web := d.shown("web")
		stored := d.manifest("web")
		d.write(adding(web, debugger("dbg", func(e *corev1.EphemeralContainer) { e.TargetContainerName = "c" })))
		now := d.shown("web")
		if len(now.Spec.EphemeralContainers) != 1 || now.UID != web.UID {
			t.Fatalf("clients see %+v", now.Spec)
		}
		time.Sleep(time.Second)
		now = d.shown("web")
		if all := now.Status.EphemeralContainerStatuses; len(all) != 1 || all[0].State.Running == nil || now.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("status %+v", now.Status)
		}
		if d.manifest("web") != stored {
			t.Error("its manifest has changed")
		}
		labeled := now.DeepCopy()
		labeled.Labels, labeled.Generation = map[string]string{"a": "b"}, 2
		d.write(put(labeled))
		time.Sleep(time.Second)
		if note := d.store.Note(id("Pod", "web")); note.Generation != 1 {
			t.Errorf("the ephemeral container is counted twice: %d", note.Generation)
		}
		if now = d.shown("web"); now.Labels["a"] != "b" || len(now.Spec.EphemeralContainers) != 1 || strings.Contains(d.manifest("web"), "ephemeral") {
			t.Errorf("after a write of the pod: %+v, %s", now.Spec, d.manifest("web"))
		}

		other := adding(web, debugger("dbg", func(e *corev1.EphemeralContainer) { e.Image = "other:1" }))
		if err := d.fails(other); !apierrors.IsConflict(err) {
			t.Errorf("another of that name: %v", err)
		}
		gone := web.DeepCopy()
		gone.UID = "another"
		if err := d.fails(adding(gone, debugger("late", nil))); !apierrors.IsConflict(err) {
			t.Errorf("another pod: %v", err)
		}
	})
}

func TestEphemeralContainersThatAreRefused(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, t.TempDir(), "")
	d.cfg.Applier.Policy.PodSecurity = "baseline"
	var many []corev1.EphemeralContainer
	for i := range runner.MaxEphemeral + 1 {
		many = append(many, debugger("d"+string(rune('a'+i)), nil))
	}
	edit := func(f func(*corev1.EphemeralContainer)) []corev1.EphemeralContainer {
		return []corev1.EphemeralContainer{debugger("dbg", f)}
	}
	for name, c := range map[string]struct {
		add  []corev1.EphemeralContainer
		code int32
		text string
	}{
		"no image":  {edit(func(e *corev1.EphemeralContainer) { e.Image = "" }), 422, "spec.ephemeralContainers[0].image: Required value"},
		"its name":  {edit(func(e *corev1.EphemeralContainer) { e.Name = "c" }), 422, `spec.ephemeralContainers[0].name: Duplicate value: "c"`},
		"no target": {edit(func(e *corev1.EphemeralContainer) { e.TargetContainerName = "no" }), 422, `targetContainerName: Not found: "no"`},
		"a probe":   {edit(func(e *corev1.EphemeralContainer) { e.LivenessProbe = &corev1.Probe{} }), 422, "livenessProbe: Forbidden: cannot be set for an Ephemeral Container"},
		"no volume": {edit(func(e *corev1.EphemeralContainer) {
			e.VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
		}), 422, `Not found: "v"`},
		"too many":   {many, 422, "Too many"},
		"privileged": {edit(func(e *corev1.EphemeralContainer) { e.SecurityContext = &corev1.SecurityContext{Privileged: new(true)} }), 403, `violates PodSecurity "baseline`},
		"no runtime": {edit(nil), 503, "the container runtime is not open"},
	} {
		err := d.fails(adding(script("web", ""), c.add...))
		status, ok := err.(apierrors.APIStatus)
		if !ok || status.Status().Code != c.code || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
	change := adding(script("web", ""), debugger("dbg", nil))
	if _, err := d.Write(t.Context(), true, func() (kubeapi.Change, error) { return change, nil }); err != nil {
		t.Errorf("a dry run: %v", err)
	}
}
