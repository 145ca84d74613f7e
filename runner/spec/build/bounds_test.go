package build

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/expand"
	"monopod/manifests"
	"monopod/runner/spec/spectest"
)

// What a container is made of is measured before it is made: a small manifest, with content that is only known when it starts, cannot
// stand for more than a process can be started with.
func TestNothingOfAContainerBecomesLargerThanAProcessCanHave(t *testing.T) {
	refs := &manifests.Refs{ConfigMaps: map[string]*corev1.ConfigMap{
		"big": spectest.BigMap("big", 1, 1<<20), "many": spectest.BigMap("many", 20_000, 400_000), "half": spectest.BigMap("half", 1, 70_000),
	}}
	key := func(name string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: "k0"}}
	}
	from := func(n int, name string) (list []corev1.EnvFromSource) {
		for i := range n {
			list = append(list, corev1.EnvFromSource{
				Prefix: fmt.Sprintf("P%d_", i), ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}},
			})
		}
		return list
	}
	half := corev1.EnvVar{Name: "H", ValueFrom: key("half")}
	image := make([]string, 30_000)
	for i := range image {
		image[i] = fmt.Sprintf("V%d=%s", i, strings.Repeat("z", 100))
	}
	for _, tt := range []struct {
		name  string
		c     corev1.Container
		image []string
		want  string
	}{
		{"variables made of variables", corev1.Container{Env: tenfold()}, nil, `container "c": env[5] A5: `},
		{"a value of a ConfigMap that is too long", corev1.Container{Env: []corev1.EnvVar{{Name: "B", ValueFrom: key("big")}}}, nil, `env[0] B: `},
		{"a value of a ConfigMap, twice", corev1.Container{Env: []corev1.EnvVar{half, {Name: "T", Value: "$(H)$(H)"}}}, nil, `env[1] T: `},
		{"arguments made of it", corev1.Container{Env: []corev1.EnvVar{half}, Args: []string{"a", "$(H)$(H)"}}, nil, `args[1]: `},
		{"a command made of it", corev1.Container{Env: []corev1.EnvVar{half}, Command: []string{strings.Repeat("$(H)", 1<<20)}}, nil, `command[0]: `},
		{"many arguments made of it", corev1.Container{Env: []corev1.EnvVar{half}, Args: strings.Split(strings.Repeat("$(H) ", 10_000), " ")}, nil, `args[28]: `},
		{"one ConfigMap under many prefixes", corev1.Container{EnvFrom: from(5_000, "many")}, nil, `envFrom[`},
		{"a ConfigMap with too long a value", corev1.Container{EnvFrom: from(1, "big")}, nil, `envFrom: variable P0_k0: `},
		{"an image with too many variables", corev1.Container{}, image, `environment of the image: `},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.c.Name = "c"
			in := spectest.Input(spectest.Pod(func(_ *corev1.Pod, c *corev1.Container) { *c = tt.c }), "c")
			in.Refs, in.Image.Env = refs, tt.image
			var err error
			cost := spectest.Allocated(func() { _, err = Spec(in) })
			if err == nil || !strings.Contains(err.Error(), tt.want) || len(err.Error()) > 300 {
				t.Errorf("got %.300v, want it to name %q", err, tt.want)
			}
			if cost > 128<<20 {
				t.Errorf("%d MiB were allocated", cost>>20)
			}
		})
	}
}

func TestASubPathIsNoLongerThanAPath(t *testing.T) {
	vars := map[string]string{"A": strings.Repeat("a/", 1000)}
	if _, err := subPath(&corev1.VolumeMount{SubPathExpr: "$(A)$(A)"}, vars); err != nil {
		t.Error(err)
	}
	if _, err := subPath(&corev1.VolumeMount{SubPathExpr: strings.Repeat("$(A)", 1<<20)}, vars); err == nil || !strings.Contains(err.Error(), "4095 bytes") {
		t.Error(err)
	}
}

// What a process can have is not refused: the longest variable and the longest argument.
func TestTheLargestThatAProcessCanHaveIsBuilt(t *testing.T) {
	s, err := Spec(spectest.Input(spectest.Pod(func(_ *corev1.Pod, c *corev1.Container) {
		c.Env = []corev1.EnvVar{{Name: "A", Value: strings.Repeat("x", expand.MaxWord-2)}}
		c.Command = []string{strings.Repeat("y", expand.MaxWord)}
	}), "app"))
	if err != nil || len(s.Process.Args[0]) != expand.MaxWord {
		t.Fatal(err)
	}
}

// tenfold is an environment of a kilobyte in which each variable is eight times the one before: the last has 16 × 8^12 bytes.
func tenfold() []corev1.EnvVar {
	env := []corev1.EnvVar{{Name: "A0", Value: strings.Repeat("x", 16)}}
	for i := range 12 {
		env = append(env, corev1.EnvVar{Name: fmt.Sprintf("A%d", i+1), Value: strings.Repeat(fmt.Sprintf("$(A%d)", i), 8)})
	}
	return env
}
