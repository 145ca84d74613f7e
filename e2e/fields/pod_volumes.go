package fields

import (
	"fmt"
	"slices"
	"strings"
)

const (
	v = "spec.volumes[]."
	// mounted mounts volume v.
	mounted = "volumeMounts: [{name: v, mountPath: /v}]"
)

// podVolumeRows are the rows of volumes that are read, as against those that are written to.
func podVolumeRows() []Row {
	rows := []Row{
		{
			// Each is where its name says, whatever the order; a name without a volume is refused.
			Name: "volume-name", Fields: []string{v + "name"},
			Otherwise: map[string]any{v + "name": "other"}, Refused: []string{v + "name"},
			Spec:      "volumes: [{name: one, downwardAPI: {items: [{path: one, fieldRef: {fieldPath: metadata.name}}]}}, {name: two, emptyDir: {}}]",
			Container: "volumeMounts: [{name: two, mountPath: /two}, {name: one, mountPath: /one}]",
			Script:    "[ -e /one/one ]; touch /two/x",
		},
		{
			Name: "hostpath-type", Fields: []string{v + "hostPath.type"},
			Spec: "volumes: [{name: v, hostPath: {path: DIR, type: File}}]", Container: mounted, Script: "true",
			Check: when(waitsFor("hostPath type check failed"), succeeded),
		},
		{
			Name: "imagevolume", Fields: []string{v + "image.reference"},
			Otherwise: map[string]any{v + "image.reference": "REGISTRY/none:1"},
			Spec:      "volumes: [{name: v, image: {reference: REGISTRY/busybox:1}}]", Container: mounted,
			Script: "cmp /v/bin/busybox /bin/busybox", Check: when(succeeded, pullFails),
		},
		{
			Name: "imagevolume-pullpolicy", Fields: []string{v + "image.pullPolicy"},
			Spec: "volumes: [{name: v, image: {reference: \"127.0.0.1:1/none:1\", pullPolicy: Never}}]", Container: mounted,
			Script: "true", Check: when(waits("ErrImageNeverPull"), pullFails),
		},
	}
	for _, kind := range []string{"configMap", "secret", "downwardAPI"} {
		rows = append(rows, filesRows(files{kind: kind, at: v + kind + ".", options: v + kind + "."})...)
		rows = append(rows, filesRows(files{
			kind: kind, at: v + "projected.sources[]." + kind + ".", options: v + "projected.", projected: true,
		})...)
	}
	return onHost(rows)
}

// waitsFor makes a condition: container c waits, and says this.
func waitsFor(text string) func(s *Seen) bool {
	return func(s *Seen) bool {
		w := s.Status("c").State.Waiting
		return w != nil && strings.Contains(w.Message, text)
	}
}

// files is a volume of files that are made from something else.
type files struct {
	// kind is configMap, secret or downwardAPI.
	kind string
	// at begins the paths of fields of the source, options those of the defaults of the whole volume.
	at, options string
	projected   bool
}

// name begins those of rows.
func (f files) name() string {
	name := "volume-" + strings.ToLower(f.kind)
	if f.projected {
		return name + "-projected"
	}
	return name
}

// ref is the field that names the object.
func (f files) ref() string {
	if f.kind == "secret" && !f.projected {
		return "secretName"
	}
	return "name"
}

// spec is that of a pod with volume v of a source, given by its fields, and of defaults for the files of the volume.
func (f files) spec(source, defaults string) string {
	if f.projected {
		return fmt.Sprintf("volumes: [{name: v, projected: {sources: [{%s: {%s}}]%s}}]\n", f.kind, source, defaults)
	}
	return fmt.Sprintf("volumes: [{name: v, %s: {%s%s}}]\n", f.kind, source, defaults)
}

const (
	// Of file p the mode and owner are given, of q they are those of the volume.
	fileOfItem, fileOfVolume = "mode: 0440, user: 1000", ", defaultMode: 0400, defaultUser: 2000"
	modesAndOwners           = "\n[ $(stat -Lc %a:%u /v/p) = 440:1000 ]; [ $(stat -Lc %a:%u /v/q) = 400:2000 ]"
)

func filesRows(f files) []Row {
	rows := f.objectRows()
	if f.kind == "downwardAPI" {
		rows = f.downwardRows()
	}
	for i := range rows {
		rows[i].Container = mounted + "\n" + rows[i].Container
	}
	return rows
}

// objectRows are those of volumes of a ConfigMap or Secret.
func (f files) objectRows() []Row {
	const object = `
apiVersion: v1
kind: %s
metadata: {name: NAME%s}
%s: {key: %s, other: wrong}
`
	kind, data := "ConfigMap", "data"
	if f.kind == "secret" {
		kind, data = "Secret", "stringData"
	}
	objects := fmt.Sprintf(object, kind, "", data, "right") + "---" + fmt.Sprintf(object, kind, "-other", data, "wrong")
	ref := f.at + f.ref()
	return []Row{
		{
			Name:      f.name(),
			Fields:    slices.Concat([]string{ref}, under(f.at+"items[].", "key", "mode", "user"), under(f.options, "defaultMode", "defaultUser")),
			Otherwise: map[string]any{ref: "NAME-other", f.at + "items[].key": "other"}, Objects: objects,
			Spec:   f.spec(f.ref()+": NAME, items: [{key: key, path: p, "+fileOfItem+"}, {key: other, path: q}]", fileOfVolume),
			Script: "[ $(cat /v/p) = right ]; [ $(cat /v/q) = wrong ]" + modesAndOwners,
		},
		{
			Name: f.name() + "-path", Fields: []string{f.at + "items[].path"}, Objects: objects,
			Otherwise: map[string]any{f.at + "items[].path": "q"},
			Spec:      f.spec(f.ref()+": NAME, items: [{key: key, path: p/p}]", ""), Script: "[ $(cat /v/p/p) = right ]; [ \"$(ls /v)\" = p ]",
		},
		{
			Name: f.name() + "-optional", Fields: []string{f.at + "optional"},
			Spec: f.spec(f.ref()+": none-of-this-name, optional: true", ""), Script: "[ -z \"$(ls /v)\" ]",
			Check: when(succeeded, waits("FailedMount")),
		},
	}
}

// downwardRows are those of volumes of fields of the pod.
func (f files) downwardRows() []Row {
	item := f.at + "items[]."
	field, resource := item+"fieldRef.", item+"resourceFieldRef."
	return []Row{
		{
			Name: f.name(),
			Fields: slices.Concat(
				under(item, "mode", "user"), under(field, "apiVersion", "fieldPath"),
				under(resource, "containerName", "resource", "divisor"), under(f.options, "defaultMode", "defaultUser"),
			),
			Otherwise: map[string]any{
				field + "apiVersion": "v2", field + "fieldPath": "metadata.namespace",
				resource + "containerName": "c", resource + "resource": "requests.cpu",
			},
			Refused: under(field, "apiVersion"),
			Spec: f.spec(
				"items: [{path: p, fieldRef: {apiVersion: v1, fieldPath: metadata.name}, "+fileOfItem+"}, "+
					"{path: q, resourceFieldRef: {containerName: other, resource: limits.cpu, divisor: 1m}}]", fileOfVolume) +
				"containers: [{name: other, image: IMAGE, command: ['true'], resources: {limits: {cpu: 3}, requests: {cpu: 1}}}]",
			Container: "resources: {limits: {cpu: 2}}",
			Script:    "[ $(cat /v/p) = NAME ]; [ $(cat /v/q) = 3000 ]" + modesAndOwners,
		},
		{
			Name: f.name() + "-path", Fields: under(item, "path"), Otherwise: map[string]any{item + "path": "q"},
			Spec:   f.spec("items: [{path: p/p, fieldRef: {fieldPath: metadata.name}}]", ""),
			Script: "[ $(cat /v/p/p) = NAME ]; [ \"$(ls /v)\" = p ]",
		},
	}
}
