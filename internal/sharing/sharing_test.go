package sharing_test

import (
	"slices"
	"strings"
	"testing"

	"monopod/internal/sharing"
	"monopod/manifests"
	"monopod/manifests/spaces/spacestest"
)

func TestAllHiddenReferencesAreListed(t *testing.T) {
	list := spacestest.Everything(t, "applied")
	pods := []*manifests.Pod{spacestest.Pod(t, "fleet"), spacestest.Pod(t, "file")}
	hidden := sharing.List(pods, manifests.NewObjectsIn(spacestest.Spaces(nil), list))
	var all []string
	for _, h := range hidden {
		all = append(all, h.String())
	}
	want := "pod default/p of fleet: ConfigMap default/m of applied, pod default/p of fleet: PersistentVolumeClaim default/c of applied, " +
		"pod default/p of fleet: Secret default/s of applied"
	if got := strings.Join(all, ", "); got != want {
		t.Error(got)
	}
	shared := map[string][]string{"site": {"file"}, "fleet": {"site/x"}}
	if got := sharing.Value(hidden, shared); got != "{fleet: [site/x, applied/default], site: [file]}" || len(shared["fleet"]) != 1 {
		t.Error(got)
	}
	claim := slices.Concat(spacestest.Content(t, "fleet", "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: c}\nspec: {accessModes: [ReadWriteOnce], volumeName: v, resources: {requests: {storage: 1Gi}}}\n").Objects,
		slices.DeleteFunc(list, func(o *manifests.Object) bool { return o.Kind != "PersistentVolume" }))
	hidden = sharing.List(pods[:1], manifests.NewObjectsIn(spacestest.Spaces(nil), claim))
	if len(hidden) != 1 || hidden[0].Object.Kind != "PersistentVolume" || sharing.Value(hidden, nil) != "{fleet: [applied]}" {
		t.Errorf("%v", hidden)
	}
}
