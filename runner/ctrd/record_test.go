package ctrd

import (
	"testing"

	"github.com/containerd/containerd/v2/core/sandbox"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/manifests"
)

var testKey = manifests.Key{Namespace: "default", Name: "web"}

func testPod() *manifests.Pod {
	return &manifests.Pod{
		Object: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "busybox"}}},
		},
		Origin: manifests.Origin{Source: "file", File: "/etc/web.yaml", Line: 3},
	}
}

func sandboxOf(id string, state sandboxState) *sandboxRecord {
	return &sandboxRecord{ID: id, Pod: testPod(), Labels: sandboxLabels{Key: testKey, UID: "uid-" + id, State: state}}
}

func TestASandboxRecordComesBackAsItWas(t *testing.T) {
	want := sandboxOf("sb", sandboxActive)
	want.Network = networkResult{Ready: true, IPs: []string{"10.0.0.2", "fd00::2"}}
	want.Pod.Images = map[string]string{"a": "sha256:1", "volume/v": "sha256:2"}
	ext, err := want.extensions()
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeSandbox(sandbox.Sandbox{ID: "sb", Labels: want.Labels.encode(), Extensions: ext})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestADamagedSandboxRecordIsAnError(t *testing.T) {
	ext, err := sandboxOf("sb", sandboxActive).extensions()
	if err != nil {
		t.Fatal(err)
	}
	ext[extPod] = jsonAny{url: extPod, value: []byte("{")}
	if _, err := decodeSandbox(sandbox.Sandbox{ID: "sb", Extensions: ext}); err == nil {
		t.Error("no error")
	}
}

func TestARemovingSandboxDisappearsFromItsPodOnly(t *testing.T) {
	x := newIndex()
	x.putSandbox(sandboxOf("a", sandboxActive))
	x.putSandbox(sandboxOf("a", sandboxRemoving))
	if got := x.sandbox(testKey); got != nil {
		t.Errorf("pod still has sandbox %s", got.ID)
	}
	if x.sandboxByID("a") == nil {
		t.Error("the record is gone")
	}
	x.putSandbox(sandboxOf("b", sandboxActive))
	x.deleteSandbox("a")
	if got := x.sandbox(testKey); got == nil || got.ID != "b" {
		t.Errorf("pod has sandbox %v, want b", got)
	}
}

// TestWhatChangesWhileRecordsAreReadStays: a sandbox that was made while containerd's records were read after a loss of connection
// was forgotten, and another one made.
func TestWhatChangesWhileRecordsAreReadStays(t *testing.T) {
	container := func(id, hash string) *containerRecord {
		return &containerRecord{ID: id, Labels: containerLabels{Key: testKey, SandboxID: "made", Hash: hash}}
	}
	x := newIndex()
	x.putSandbox(sandboxOf("gone", sandboxRemoving))
	x.putContainer(container("kept", "old"))
	x.putContainer(container("gone", "old"))
	x.reload()
	x.putSandbox(sandboxOf("made", sandboxActive))
	x.putContainer(container("new", "new"))
	x.deleteContainer("gone")
	x.deleteSandbox("gone")
	x.deleteContainer("never known")
	x.replace([]*sandboxRecord{sandboxOf("gone", sandboxRemoving)}, []*containerRecord{container("kept", "read"), container("gone", "read"), container("never known", "read")})
	if got := x.sandbox(testKey); got == nil || got.ID != "made" || len(x.list()) != 1 {
		t.Errorf("the pod has %v of %d sandboxes", got, len(x.list()))
	}
	var got []string
	for _, c := range x.ofPod(testKey) {
		got = append(got, c.ID+" "+c.Labels.Hash)
	}
	if d := cmp.Diff([]string{"kept read", "new new"}, got); d != "" {
		t.Error(d)
	}
	x.putSandbox(sandboxOf("later", sandboxActive))
	x.replace(nil, nil)
	if len(x.list()) != 0 || len(x.all()) != 0 {
		t.Error("what changed before an earlier replace counts")
	}
}

func TestTheIndexKeepsContainersInOrder(t *testing.T) {
	x := newIndex()
	for _, id := range []string{"1", "2", "3"} {
		x.putContainer(&containerRecord{ID: id, Labels: containerLabels{Key: testKey, SandboxID: "sb"}})
	}
	x.putContainer(&containerRecord{ID: "1", Labels: containerLabels{Key: testKey, SandboxID: "sb", Hash: "new"}})
	x.deleteContainer("2")
	x.deleteContainer("2")
	var got []string
	for _, c := range x.ofPod(testKey) {
		got = append(got, c.ID+c.Labels.Hash)
	}
	if d := cmp.Diff([]string{"1new", "3"}, got); d != "" {
		t.Error(d)
	}
	if n := len(x.ofSandbox("sb")); n != 2 {
		t.Errorf("sandbox has %d containers, want 2", n)
	}
	x.replace(nil, nil)
	if len(x.all()) != 0 || len(x.ofPod(testKey)) != 0 {
		t.Error("replace left containers")
	}
}
