package record

import (
	"maps"
	"testing"

	"github.com/containerd/containerd/v2/core/sandbox"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/manifests"
)

var TestKey = manifests.Key{Namespace: "default", Name: "web"}

func testPod() *manifests.Pod {
	return &manifests.Pod{
		Object: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "busybox"}}},
		},
		Origin: manifests.Origin{Source: "file", File: "/etc/web.yaml", Line: 3},
	}
}

func sandboxOf(id string, state SandboxState) *Sandbox {
	return &Sandbox{ID: id, Pod: testPod(), Meta: SandboxMeta{Key: TestKey, UID: "uid-" + id, State: state}}
}

func TestASandboxRecordComesBackAsItWas(t *testing.T) {
	want := sandboxOf("sb", Active)
	want.Network = NetworkResult{Ready: true, IPs: []string{"10.0.0.2", "fd00::2"}}
	want.Pod.Images = map[string]string{"a": "sha256:1", "volume/v": "sha256:2"}
	ext, err := want.Extensions()
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeSandbox(sandbox.Sandbox{ID: "sb", Labels: want.Meta.Labels(), Extensions: ext})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestADamagedSandboxRecordIsAnError(t *testing.T) {
	ext, err := sandboxOf("sb", Active).Extensions()
	if err != nil {
		t.Fatal(err)
	}
	for name := range ext {
		damaged := maps.Clone(ext)
		damaged[name] = jsonAny{url: name, value: []byte("{")}
		if _, err := decodeSandbox(sandbox.Sandbox{ID: "sb", Extensions: damaged}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestARemovingSandboxDisappearsFromItsPodOnly(t *testing.T) {
	x := NewIndex()
	x.PutSandbox(sandboxOf("a", Active))
	x.PutSandbox(sandboxOf("a", Removing))
	if got := x.Sandbox(TestKey); got != nil {
		t.Errorf("pod still has sandbox %s", got.ID)
	}
	if x.SandboxByID("a") == nil {
		t.Error("the record is gone")
	}
	x.PutSandbox(sandboxOf("b", Active))
	x.DeleteSandbox("a")
	if got := x.Sandbox(TestKey); got == nil || got.ID != "b" {
		t.Errorf("pod has sandbox %v, want b", got)
	}
}

// TestWhatChangesWhileRecordsAreReadStays has a sandbox that is created while records are reloaded; it was lost, and another one
// created.
func TestWhatChangesWhileRecordsAreReadStays(t *testing.T) {
	container := func(id, hash string) *Container {
		return &Container{ID: id, Meta: ContainerMeta{Key: TestKey, SandboxID: "made", Hash: hash}}
	}
	x := NewIndex()
	x.PutSandbox(sandboxOf("gone", Removing))
	x.PutContainer(container("kept", "old"))
	x.PutContainer(container("gone", "old"))
	x.reload()
	x.PutSandbox(sandboxOf("made", Active))
	x.PutContainer(container("new", "new"))
	x.DeleteContainer("gone")
	x.DeleteSandbox("gone")
	x.DeleteContainer("never known")
	x.replace([]*Sandbox{sandboxOf("gone", Removing)}, []*Container{container("kept", "read"), container("gone", "read"), container("never known", "read")})
	if got := x.Sandbox(TestKey); got == nil || got.ID != "made" || len(x.List()) != 1 {
		t.Errorf("the pod has %v of %d sandboxes", got, len(x.List()))
	}
	var got []string
	for _, c := range x.OfPod(TestKey) {
		got = append(got, c.ID+" "+c.Meta.Hash)
	}
	if d := cmp.Diff([]string{"kept read", "new new"}, got); d != "" {
		t.Error(d)
	}
	x.PutSandbox(sandboxOf("later", Active))
	x.replace(nil, nil)
	if len(x.List()) != 0 || len(x.All()) != 0 {
		t.Error("what changed before an earlier replace counts")
	}
}

func TestTheIndexKeepsContainersInOrder(t *testing.T) {
	x := NewIndex()
	for _, id := range []string{"1", "2", "3"} {
		x.PutContainer(&Container{ID: id, Meta: ContainerMeta{Key: TestKey, SandboxID: "sb"}})
	}
	x.PutContainer(&Container{ID: "1", Meta: ContainerMeta{Key: TestKey, SandboxID: "sb", Hash: "new"}})
	x.DeleteContainer("2")
	x.DeleteContainer("2")
	var got []string
	for _, c := range x.OfPod(TestKey) {
		got = append(got, c.ID+c.Meta.Hash)
	}
	if d := cmp.Diff([]string{"1new", "3"}, got); d != "" {
		t.Error(d)
	}
	if n := len(x.OfSandbox("sb")); n != 2 {
		t.Errorf("sandbox has %d containers, want 2", n)
	}
	x.replace(nil, nil)
	if len(x.All()) != 0 || len(x.OfPod(TestKey)) != 0 {
		t.Error("replace left containers")
	}
}
