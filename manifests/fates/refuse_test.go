package fates_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests/document"
	"monopod/manifests/fates"
	"monopod/manifests/manifesttest"
)

func TestRefusals(t *testing.T) {
	const never = "not supported: "
	for _, tt := range []struct {
		name, pod string
		// want is "path: the beginning of the message; the hint" of each refusal, notes the same of each note.
		want, notes []string
	}{
		{
			name: "an ordinary pod",
			pod:  "metadata: {name: p}\nspec: {containers: [{name: a, image: i}], restartPolicy: Never}\n",
		},
		{
			name: "a pod that is being deleted",
			pod:  "metadata: {name: p, deletionTimestamp: 2024-01-01T00:00:00Z}\n",
			want: []string{"metadata.deletionTimestamp: " + never + "it means that the pod is being deleted; remove the field to run the pod, or the document to stop it"},
		},
		{
			name: "a generated name",
			pod:  "metadata: {generateName: p-}\n",
			want: []string{"metadata.generateName: monopod does not generate names; write metadata.name"},
		},
		{
			name: "a name beside the generated one",
			pod:  "metadata: {name: p, generateName: p-}\n",
		},
		{
			name: "a uid that is no name of a directory",
			pod:  "metadata: {name: p, uid: ../x}\n",
			want: []string{`metadata.uid: the string "../x" cannot be part of a directory name; use at most 128 letters, digits, '-', '_' and '.', or omit the uid`},
		},
		{
			name: "a uid that hides its directory",
			pod:  "metadata: {name: p, uid: .x}\n",
			want: []string{`metadata.uid: the string ".x" cannot be part of a directory name; use at most 128 letters, digits, '-', '_' and '.', or omit the uid`},
		},
		{
			name: "a volume of a cluster",
			pod:  "metadata: {name: p}\nspec: {volumes: [{name: v, emptyDir: {}}, {name: w, csi: {driver: d}}]}\n",
			want: []string{"spec.volumes[1].csi: " + never + "Kubernetes has removed this volume type or needs a cluster for it; mount it on the host and use a hostPath volume"},
		},
		{
			name: "one refusal for all fields below a refused one",
			pod:  "metadata: {name: p}\nspec: {resourceClaims: [{name: a, resourceClaimName: b}, {name: c}]}\n",
			want: []string{"spec.resourceClaims: " + never + "needs an API server"},
		},
		{
			name: "a refused value of an enforced field",
			pod:  "metadata: {name: p}\nspec: {os: {name: windows}}\n",
			want: []string{`spec.os.name: the value "windows" is not supported: monopod runs Linux containers`},
		},
		{
			name: "a field of init containers, as of containers",
			pod:  "metadata: {name: p}\nspec: {initContainers: [{name: a, lifecycle: {preStop: {tcpSocket: {port: 1}}}}]}\n",
			want: []string{"spec.initContainers[0].lifecycle.preStop.tcpSocket: " + never},
		},
		{
			name:  "a token that nobody mounts",
			pod:   "metadata: {name: p}\nspec: {automountServiceAccountToken: true}\n",
			notes: []string{"spec.automountServiceAccountToken: ignored: without the annotation monopod.dev/api-access the pod gets no token"},
		},
		{
			name: "no token, as written",
			pod:  "metadata: {name: p}\nspec: {automountServiceAccountToken: false}\n",
		},
		{
			name:  "labels of mounts instead of files",
			pod:   "metadata: {name: p}\nspec: {securityContext: {seLinuxChangePolicy: MountOption}}\n",
			notes: []string{"spec.securityContext.seLinuxChangePolicy: ignored: with SELinux, each file"},
		},
		{
			name: "labels of files, as written",
			pod:  "metadata: {name: p}\nspec: {securityContext: {seLinuxChangePolicy: Recursive}}\n",
		},
		{
			name: "harmless fields",
			pod:  "metadata: {name: p, finalizers: [a/b], generation: 3}\nspec: {tolerations: [{operator: Exists}], schedulerName: x}\nstatus: {phase: Running}\n",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			found, notes := fates.Refusals(manifesttest.Pod(t, "apiVersion: v1\nkind: Pod\n"+tt.pod), document.Item{Source: &document.Source{}})
			compare(t, found, tt.want)
			compare(t, notes, tt.notes)
		})
	}
}

// compare matches the beginning of each problem, in any order.
func compare(t *testing.T, problems []document.Problem, want []string) {
	t.Helper()
	if len(problems) != len(want) {
		t.Fatalf("%d problems, want %d: %+v", len(problems), len(want), problems)
	}
	for i, p := range problems {
		text := p.Path + ": " + p.Msg
		if p.Hint != "" {
			text += "; " + p.Hint
		}
		if !strings.HasPrefix(text, want[i]) {
			t.Errorf("got  %s\nwant %s", text, want[i])
		}
	}
}

func TestPathsOfAnElementOfAList(t *testing.T) {
	pod := manifesttest.Pod(t, "apiVersion: v1\nkind: Pod\nmetadata: {generateName: p-}\nspec: {schedulingGates: [{name: g}]}\n")
	found, _ := fates.Refusals(pod, document.Item{Source: &document.Source{}, Prefix: "items[2]"})
	compare(t, found, []string{"items[2].spec.schedulingGates: not supported", "items[2].metadata.generateName: "})
}

func TestRelativePaths(t *testing.T) {
	it := document.Item{Source: &document.Source{}}
	for _, tt := range []struct {
		name   string
		source corev1.PersistentVolumeSource
		want   []string
	}{
		{
			name:   "an absolute path",
			source: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/a"}},
		},
		{
			name:   "no path, which validation reports",
			source: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{}},
		},
		{
			name:   "a relative directory",
			source: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "./a"}},
			want:   []string{`spec.hostPath.path: not supported: the string "./a" is a relative path`},
		},
		{
			name:   "a path that climbs",
			source: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "../a"}},
			want:   []string{`spec.local.path: not supported: the string "../a" is a relative path`},
		},
		{
			name:   "a source without directory",
			source: corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Path: "a"}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) { compare(t, fates.RelativePaths(&tt.source, it), tt.want) })
	}
	if hint := fates.RelativePath("../a", "x")[0].Hint; hint != `use an absolute path, as in "/srv/a"` {
		t.Errorf("the hint is %s", hint)
	}
}

func TestClaimsAreNotFilled(t *testing.T) {
	it := document.Item{Source: &document.Source{}}
	const refused = ": not supported: monopod cannot copy volumes or restore snapshots; fill the volume from an init container"
	compare(t, fates.ClaimSources(&corev1.PersistentVolumeClaimSpec{}, it, "spec"), nil)
	both := corev1.PersistentVolumeClaimSpec{DataSource: &corev1.TypedLocalObjectReference{}, DataSourceRef: &corev1.TypedObjectReference{}}
	compare(t, fates.ClaimSources(&both, it, "spec"), []string{"spec.dataSource" + refused, "spec.dataSourceRef" + refused})
}
