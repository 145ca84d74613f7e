package describe

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func TestVolumesAreNamedByWhatTheyHold(t *testing.T) {
	for volume, want := range map[string]string{
		"configMap: {name: app}":                       "ConfigMap app",
		"configMap: {name: app, optional: true}":       "ConfigMap app (optional)",
		"secret: {secretName: key}":                    "Secret key",
		"persistentVolumeClaim: {claimName: data}":     "PersistentVolumeClaim data",
		"image: {reference: model:1}":                  "image model:1",
		"nfs: {server: files, path: /srv}":             "nfs files:/srv",
		"downwardAPI: {items: []}":                     "downwardAPI",
		"ephemeral: {}":                                "ephemeral, with a PersistentVolumeClaim of its own",
		"emptyDir: {medium: Memory, sizeLimit: 1Mi}":   "emptyDir in memory, at most 1Mi",
		"hostPath: {path: /srv}":                       "hostPath /srv (any)",
		"glusterfs: {endpoints: e, path: p}":           "another type; see -o yaml",
		"iscsi: {targetPortal: 'a:1', iqn: i, lun: 2}": "iscsi a:1, i, lun 2",
		"projected: {sources: [{configMap: {name: a}}, {secret: {name: b, optional: true}}, {downwardAPI: {}}, {serviceAccountToken: {path: t}}]}": "projected: ConfigMap a, Secret b (optional), downwardAPI, token",
	} {
		var v corev1.Volume
		if err := yaml.Unmarshal([]byte(volume), &v); err != nil {
			t.Fatal(err)
		}
		if got := volumeText(&v); got != want {
			t.Errorf("%s: %q, want %q", volume, got, want)
		}
	}
}
