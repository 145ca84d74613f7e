package environ

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/runner/spec"
	"monopod/runner/spec/spectest"
)

func TestEnvironmentFromObjects(t *testing.T) {
	configMap := func(name, prefix string) corev1.EnvFromSource {
		return corev1.EnvFromSource{Prefix: prefix, ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: spectest.Named(name)}}
	}
	secret := corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: spectest.Named("app")}}
	from := func(s corev1.EnvVarSource) corev1.EnvVar { return corev1.EnvVar{Name: "X", ValueFrom: &s} }
	key := func(name, key string, optional *bool) corev1.EnvVar {
		return from(corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: spectest.Named(name), Key: key, Optional: optional}})
	}
	secretKey := func(name, key string, optional *bool) corev1.EnvVar {
		return from(corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: spectest.Named(name), Key: key, Optional: optional}})
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
		{"an optional one", []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: spectest.Named("gone"), Optional: new(true)}}}, nil, ""},
		{"a missing Secret", []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: spectest.Named("gone")}}}, nil, `secret "gone" not found`},
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
		env, _, err := Resolve(spec.Input{Pod: pod, Refs: spectest.Refs()}, &pod.Spec.Containers[0])
		var entries []string
		if err == nil {
			entries = env.Entries()
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
