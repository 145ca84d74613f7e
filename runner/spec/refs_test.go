package spec

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/cause"
	"monopod/manifests"
)

func testRefs() *manifests.Refs {
	return &manifests.Refs{
		ConfigMaps: map[string]*corev1.ConfigMap{
			"app":   {Data: map[string]string{"a": "1", "b.c": "2"}, BinaryData: map[string][]byte{"bin": {0, 1}}},
			"other": {Data: map[string]string{"a": "other"}},
		},
		Secrets: map[string]*corev1.Secret{"app": {Data: map[string][]byte{"password": []byte("hush"), "a": []byte("secret")}}},
	}
}

func named(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }

func TestEnvironmentFromObjects(t *testing.T) {
	configMap := func(name, prefix string) corev1.EnvFromSource {
		return corev1.EnvFromSource{Prefix: prefix, ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: named(name)}}
	}
	secret := corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: named("app")}}
	from := func(s corev1.EnvVarSource) corev1.EnvVar { return corev1.EnvVar{Name: "X", ValueFrom: &s} }
	key := func(name, key string, optional *bool) corev1.EnvVar {
		return from(corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: named(name), Key: key, Optional: optional}})
	}
	secretKey := func(name, key string, optional *bool) corev1.EnvVar {
		return from(corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: named(name), Key: key, Optional: optional}})
	}
	for _, c := range []struct {
		name string
		from []corev1.EnvFromSource
		env  []corev1.EnvVar
		want string // variables besides PATH and HOSTNAME, or the error
	}{
		{"all keys of data, none of binaryData", []corev1.EnvFromSource{configMap("app", "")}, nil, "a=1 b.c=2"},
		{"a prefix", []corev1.EnvFromSource{configMap("app", "P_")}, nil, "P_a=1 P_b.c=2"},
		{"later objects win", []corev1.EnvFromSource{configMap("app", ""), configMap("other", ""), secret}, nil, "a=secret b.c=2 password=hush"},
		{"env wins over envFrom", []corev1.EnvFromSource{configMap("app", "")}, []corev1.EnvVar{{Name: "a", Value: "own $(b.c)"}}, "a=own 2 b.c=2"},
		{"values of objects are not expanded", []corev1.EnvFromSource{configMap("other", "")}, []corev1.EnvVar{{Name: "e", Value: "$(a) $(z)"}}, "a=other e=other $(z)"},
		{"a missing ConfigMap", []corev1.EnvFromSource{configMap("gone", "")}, nil, `configmap "gone" not found`},
		{"an optional one", []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: named("gone"), Optional: new(true)}}}, nil, ""},
		{"a missing Secret", []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: named("gone")}}}, nil, `secret "gone" not found`},
		{"one key", nil, []corev1.EnvVar{key("app", "b.c", nil)}, "X=2"},
		{"a missing key", nil, []corev1.EnvVar{key("app", "z", nil)}, "couldn't find key z in ConfigMap default/app"},
		{"an optional key", nil, []corev1.EnvVar{key("app", "z", new(true)), {Name: "Y", Value: "$(X)"}}, "Y=$(X)"},
		{"a key of binaryData", nil, []corev1.EnvVar{key("app", "bin", nil)}, "couldn't find key bin in ConfigMap default/app"},
		{"a secret key", nil, []corev1.EnvVar{secretKey("app", "password", nil)}, "X=hush"},
		{"a missing secret key", nil, []corev1.EnvVar{secretKey("app", "z", nil)}, "couldn't find key z in Secret default/app"},
		{"an optional secret", nil, []corev1.EnvVar{secretKey("gone", "z", new(true))}, ""},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}}
		pod.Spec.Containers = []corev1.Container{{Name: "c", EnvFrom: c.from, Env: c.env}}
		env, _, err := environment(Input{Pod: pod, Refs: testRefs()}, &pod.Spec.Containers[0])
		var entries []string
		if err == nil {
			entries = env.entries()
		}
		entries = slices.DeleteFunc(entries, func(e string) bool { return strings.HasPrefix(e, "PATH=") || strings.HasPrefix(e, "HOSTNAME=") })
		slices.Sort(entries)
		got := strings.Join(entries, " ")
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
		if err != nil && strings.Contains(c.want, "not found") != IsMissing(err) && !strings.HasPrefix(c.want, "couldn't") {
			t.Errorf("%s: %T", c.name, err)
		}
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
		{"a ConfigMap", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: named("app")}}, "a:644=1 b.c:644=2 bin:644=\x00\x01"},
		{"items and modes", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: named("app"), Items: items, DefaultMode: new(int32(0o440))}}, "d/x:400=1 y:440=\x00\x01"},
		{"an item that is not there", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: named("app"), Items: []corev1.KeyToPath{{Key: "z", Path: "z"}}}}, "configmap references non-existent config key: z"},
		{"an optional item", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: named("app"), Optional: new(true), Items: []corev1.KeyToPath{{Key: "z", Path: "z"}}}}, ""},
		{"a Secret", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "app", DefaultMode: new(int32(0o600))}}, "a:600=secret password:600=hush"},
		{"a missing Secret", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "gone"}}, `secret "gone" not found`},
		{"an optional Secret", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "gone", Optional: new(true)}}, ""},
		{"fields", corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: downward}}, `a:644=2 cpu:644=2 labels:644=a="say \"x\""` + "\n" + `b="2" notes:600=n="line\nbreak"`},
		{"all in one", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{DefaultMode: new(int32(0o444)), Sources: []corev1.VolumeProjection{
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: named("app"), Items: items}},
			{Secret: &corev1.SecretProjection{LocalObjectReference: named("app"), Items: []corev1.KeyToPath{{Key: "password", Path: "d/p"}}}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: downward[2:3]}},
		}}}, "a:444=2 d/p:444=hush d/x:400=1 y:444=\x00\x01"},
	} {
		files, err := VolumeFiles(Input{Pod: pod, Refs: testRefs(), Host: testHost()}, &c.v)
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
	pod := onePod(nil)
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
		files, err := VolumeFiles(Input{Pod: pod, Refs: testRefs(), Host: testHost()}, &c.v)
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
			corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: named("app"), Items: items}},
			cause.Cause{Kind: cause.MissingKey, Object: cause.Object{Kind: cause.ConfigMap, Name: "app"}, Key: "z"},
		},
		"a key of a Secret": {
			corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "app", Items: items}},
			cause.Cause{Kind: cause.MissingKey, Object: cause.Object{Kind: cause.Secret, Name: "app"}, Key: "z"},
		},
		"a ConfigMap": {
			corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: named("gone")}},
			cause.Cause{Kind: cause.MissingConfigMap, Object: cause.Object{Kind: cause.ConfigMap, Name: "gone"}},
		},
		"a Secret": {
			corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "gone"}},
			cause.Cause{Kind: cause.MissingSecret, Object: cause.Object{Kind: cause.Secret, Name: "gone"}},
		},
	} {
		_, err := VolumeFiles(Input{Pod: pod, Refs: testRefs()}, &tt.volume)
		if got := cause.Of(err); got != tt.want || !IsMissing(err) {
			t.Errorf("%s: %+v of %v", name, got, err)
		}
	}
}
