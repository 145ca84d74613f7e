package volumeplan

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/cause"
	"monopod/manifests"
	"monopod/runner/spec"
	"monopod/runner/spec/environ"
	"monopod/runner/spec/spectest"
)

// The same megabyte under any number of paths is refused before it is copied.
func TestAVolumeOfFilesIsLimitedBeforeItIsCopied(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", Annotations: map[string]string{"a": strings.Repeat("\x01", 1<<18)}}}
	in := spec.Input{Pod: pod, Refs: &manifests.Refs{ConfigMaps: map[string]*corev1.ConfigMap{"big": spectest.BigMap("big", 1, 1<<20), "many": spectest.BigMap("many", 9_000, 9_000)}}, Host: spectest.Host()}
	named := func(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }
	var items []corev1.KeyToPath
	var fields []corev1.DownwardAPIVolumeFile
	for i := range 5_000 {
		items = append(items, corev1.KeyToPath{Key: "k0", Path: fmt.Sprintf("f%d", i)})
		fields = append(fields, corev1.DownwardAPIVolumeFile{Path: fmt.Sprintf("f%d", i), FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations"}})
	}
	projected := &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: named("many")}},
		{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: named("many"), Items: []corev1.KeyToPath{}}},
	}}
	for i := range 2_000 {
		projected.Sources[1].ConfigMap.Items = append(projected.Sources[1].ConfigMap.Items, corev1.KeyToPath{Key: "k1", Path: fmt.Sprintf("g%d", i)})
	}
	for name, tt := range map[string]struct {
		v    corev1.VolumeSource
		want string
	}{
		"one key under many paths":   {corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: named("big"), Items: items}}, "more than 32 MiB"},
		"annotations in many files":  {corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: fields}}, "more than 32 MiB"},
		"many small files":           {corev1.VolumeSource{Projected: projected}, "more than 10000 files"},
		"what is not there is named": {corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: named("gone")}}, "not found"},
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			cost := spectest.Allocated(func() { _, err = Files(in, &tt.v) })
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if cost > 256<<20 {
				t.Errorf("%d MiB were allocated", cost>>20)
			}
		})
	}
	whole := corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: named("big")}}
	var plans []Plan
	for i := range 33 {
		plans = append(plans, Plan{Name: fmt.Sprintf("v%d", i), Files: &whole})
	}
	if err := CheckFiles(in, plans[:32]); err != nil {
		t.Error(err)
	}
	if err := CheckFiles(in, plans); err == nil || !strings.Contains(err.Error(), `volume "v32"`) {
		t.Error(err)
	}
}

func TestFilesOfVolumes(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "p", Labels: map[string]string{"b": "2", "a": `say "x"`}, Annotations: map[string]string{"n": "line\nbreak"},
	}}
	pod.Spec.Containers = []corev1.Container{{Name: "c"}}
	items := []corev1.KeyToPath{{Key: "a", Path: "d/x", Mode: new(int32(0o400))}, {Key: "bin", Path: "y"}}
	downward := []corev1.DownwardAPIVolumeFile{
		{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
		{Path: "notes", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations"}, Mode: new(int32(0o600))},
		{Path: "a", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['b']"}},
		{Path: "cpu", ResourceFieldRef: &corev1.ResourceFieldSelector{ContainerName: "c", Resource: "limits.cpu"}},
	}
	for _, c := range []struct {
		name string
		v    corev1.VolumeSource
		want string
	}{
		{"a ConfigMap", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: spectest.Named("app")}}, "a:644=1 b.c:644=2 bin:644=\x00\x01"},
		{"items and modes", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: spectest.Named("app"), Items: items, DefaultMode: new(int32(0o440))}}, "d/x:400=1 y:440=\x00\x01"},
		{"an item that is not there", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: spectest.Named("app"), Items: []corev1.KeyToPath{{Key: "z", Path: "z"}}}}, "configmap references non-existent config key: z"},
		{"an optional item", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: spectest.Named("app"), Optional: new(true), Items: []corev1.KeyToPath{{Key: "z", Path: "z"}}}}, ""},
		{"a Secret", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "app", DefaultMode: new(int32(0o600))}}, "a:600=secret password:600=hush"},
		{"a missing Secret", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "gone"}}, `secret "gone" not found`},
		{"an optional Secret", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "gone", Optional: new(true)}}, ""},
		{"fields", corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: downward}}, `a:644=2 cpu:644=2 labels:644=a="say \"x\""` + "\n" + `b="2" notes:600=n="line\nbreak"`},
		{"all in one", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{DefaultMode: new(int32(0o444)), Sources: []corev1.VolumeProjection{
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: spectest.Named("app"), Items: items}},
			{Secret: &corev1.SecretProjection{LocalObjectReference: spectest.Named("app"), Items: []corev1.KeyToPath{{Key: "password", Path: "d/p"}}}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: downward[2:3]}},
		}}}, "a:444=2 d/p:444=hush d/x:400=1 y:444=\x00\x01"},
	} {
		files, err := Files(spec.Input{Pod: pod, Refs: spectest.Refs(), Host: spectest.Host()}, &c.v)
		var all []string
		for path, f := range files {
			all = append(all, path+":"+f.Mode.String()[1:]+"="+string(f.Data))
		}
		slices.Sort(all)
		got := strings.NewReplacer(
			"rw-r--r--", "644", "r--------", "400", "r--r-----", "440", "rw-------", "600", "r--r--r--", "444",
		).Replace(strings.Join(all, " "))
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestFilesOfVolumesHaveOwners(t *testing.T) {
	pod := spectest.Pod(nil)
	items := []corev1.KeyToPath{{Key: "a", Path: "x", User: new(int64(1000))}, {Key: "b.c", Path: "y"}}
	fields := []corev1.DownwardAPIVolumeFile{
		{Path: "x", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}, User: new(int64(1000))},
		{Path: "y", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}},
	}
	config := func(user *int64) corev1.VolumeSource {
		return corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "app"}, Items: items, DefaultUser: user}}
	}
	for name, c := range map[string]struct {
		v corev1.VolumeSource
		y *int64
	}{
		"a ConfigMap":    {config(new(int64(2000))), new(int64(2000))},
		"the user zero":  {config(new(int64(0))), new(int64(0))},
		"no default":     {config(nil), nil},
		"fields":         {corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: fields, DefaultUser: new(int64(2000))}}, new(int64(2000))},
		"several in one": {corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{DownwardAPI: &corev1.DownwardAPIProjection{Items: fields}}}, DefaultUser: new(int64(2000))}}, new(int64(2000))},
	} {
		files, err := Files(spec.Input{Pod: pod, Refs: spectest.Refs(), Host: spectest.Host()}, &c.v)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if x, y := files["x"].UID, files["y"].UID; x == nil || *x != 1000 || (y == nil) != (c.y == nil) || y != nil && *y != *c.y {
			t.Errorf("%s: %+v", name, files)
		}
	}
}

func TestWhatIsMissingIsTheCause(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}}
	items := []corev1.KeyToPath{{Key: "z", Path: "z"}}
	for name, tt := range map[string]struct {
		volume corev1.VolumeSource
		want   cause.Cause
	}{
		"a key of a ConfigMap": {
			corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: spectest.Named("app"), Items: items}},
			cause.Cause{Kind: cause.MissingKey, Object: cause.Object{Kind: cause.ConfigMap, Name: "app"}, Key: "z"},
		},
		"a key of a Secret": {
			corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "app", Items: items}},
			cause.Cause{Kind: cause.MissingKey, Object: cause.Object{Kind: cause.Secret, Name: "app"}, Key: "z"},
		},
		"a ConfigMap": {
			corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: spectest.Named("gone")}},
			cause.Cause{Kind: cause.MissingConfigMap, Object: cause.Object{Kind: cause.ConfigMap, Name: "gone"}},
		},
		"a Secret": {
			corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "gone"}},
			cause.Cause{Kind: cause.MissingSecret, Object: cause.Object{Kind: cause.Secret, Name: "gone"}},
		},
	} {
		_, err := Files(spec.Input{Pod: pod, Refs: spectest.Refs()}, &tt.volume)
		if got := cause.Of(err); got != tt.want || !environ.IsMissing(err) {
			t.Errorf("%s: %+v of %v", name, got, err)
		}
	}
}
