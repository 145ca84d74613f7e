package strategy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"strings"

	appsv1 "k8s.io/api/apps/v1"

	"monopod/manifests"
	"monopod/node/kubeapi/kinds"
)

// restart has the pods of a workload replaced after a write that changes annotations of its template which are there for that only: that of
// `kubectl rollout restart`, and the checksums of ConfigMaps and Secrets in charts of Helm. Annotations alone replace nothing here, so that of
// `monopod restart` is set, which does. In files they mean nothing, as before: an upgrade of monopod must not replace what runs. A client that
// replaces an object from its own source does not have that annotation: it stays, or the pods would be replaced once more.
func restart(old, now kinds.Object) {
	switch now.(type) {
	case *appsv1.Deployment, *appsv1.StatefulSet, *appsv1.DaemonSet:
	default:
		return
	}
	before, _, _ := manifests.TemplateOf(old)
	after, _, _ := manifests.TemplateOf(now)
	had, own := before.Annotations[manifests.AnnotationRestarted], after.Annotations[manifests.AnnotationRestarted]
	if own != "" && own != had {
		return // the client restarts the pods itself
	}
	wanted, value := replacing(after.Annotations), had
	if !maps.Equal(replacing(before.Annotations), wanted) {
		text, _ := json.Marshal(wanted) // sorted by key; a map of strings has no errors
		sum := sha256.Sum256(text)
		value = hex.EncodeToString(sum[:8])
	}
	if value == "" {
		return
	}
	if after.Annotations == nil {
		after.Annotations = map[string]string{}
	}
	after.Annotations[manifests.AnnotationRestarted] = value
}

// replacing returns the annotations whose purpose is to replace pods.
func replacing(annotations map[string]string) map[string]string {
	found := map[string]string{}
	for key, value := range annotations {
		if key == "kubectl.kubernetes.io/restartedAt" || strings.HasPrefix(key, "checksum/") {
			found[key] = value
		}
	}
	return found
}
