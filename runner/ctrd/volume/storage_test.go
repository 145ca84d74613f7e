package volume

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"monopod/internal/cause"
	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/runner/ctrd/layout"
	"monopod/runner/ctrd/record"
	"monopod/runner/spec/volumeplan"
)

// TestAPodKeepsItsClaimAndAnEditWaits: the claim of a running pod has become that of another space. The pod keeps what it has; an edit,
// which may need a new sandbox, is refused before the pod is touched.
func TestAPodKeepsItsClaimAndAnEditWaits(t *testing.T) {
	content, err := decode.All("/fleet.yaml", []byte(`
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  volumes: [{name: v, persistentVolumeClaim: {claimName: c}}]
  containers: [{name: a, image: i}]
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: c}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`), decode.Options{Source: "fleet"})
	if err != nil {
		t.Fatal(err)
	}
	content.Pods[0].Object.UID = "u"
	objects := manifests.NewObjectsIn(&manifests.Spaces{Local: []string{"applied"}}, content.Objects)
	pod := manifests.WithRefs(content.Pods[0], nil, objects)
	s := &Storage{Dirs: layout.Dirs{Root: t.TempDir()}, Index: record.NewIndex(), Log: slog.New(slog.DiscardHandler)}
	s.Index.PutSandbox(&record.Sandbox{ID: "1", Pod: pod, Meta: record.SandboxMeta{Key: pod.Key(), UID: "u", State: record.Active}})
	s.OpenBook()
	claim := volumeplan.Plan{Name: "v", Claim: &volumeplan.Claim{Name: "c"}}
	has, err := s.pinClaim(pod.Object, pod.Refs, claim.Claim)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.checkStorage(pod, claim); err != nil {
		t.Errorf("its own claim: %v", err)
	}
	if err := os.WriteFile(filepath.Join(s.Dirs.VolumesDir(), "bindings.json"), []byte(`{"default/c": {"source": "applied", "origin": {}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	s.OpenBook()
	if again, err := s.pinClaim(pod.Object, pod.Refs, claim.Claim); err != nil || again.Directory != has.Directory {
		t.Errorf("a restarted container gets %+v, %v", again, err)
	}
	if err := s.checkStorage(pod, claim); cause.Of(err).Fault != cause.Owned {
		t.Errorf("an edit: %v", err)
	}
}
