package environ

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/cause"
	"monopod/internal/expand"
	"monopod/manifests"
	"monopod/runner/spec"
	"monopod/runner/spec/spectest"
)

// resolved returns the environment of the only container of a pod.
func resolved(t *testing.T, edit func(*spec.Input, *corev1.Container)) ([]string, map[string]string, error) {
	t.Helper()
	pod := spectest.Pod(nil)
	in := spectest.Input(pod, "app")
	in.Refs = spectest.Refs()
	edit(&in, &pod.Spec.Containers[0])
	env, vars, err := Resolve(in, &pod.Spec.Containers[0])
	if err != nil {
		return nil, nil, err
	}
	return env.Entries(), vars, nil
}

func TestTheOrderOfTheEnvironment(t *testing.T) {
	path := "PATH=" + DefaultPath
	for name, tt := range map[string]struct {
		edit func(*spec.Input, *corev1.Container)
		want []string
	}{
		"of a bare image":     {func(*spec.Input, *corev1.Container) {}, []string{path, "HOSTNAME=web"}},
		"with a terminal":     {func(_ *spec.Input, c *corev1.Container) { c.TTY = true }, []string{path, "TERM=xterm", "HOSTNAME=web"}},
		"without a host name": {func(in *spec.Input, _ *corev1.Container) { in.Sandbox.Hostname = "" }, []string{path, "HOSTNAME=node1"}},
		"a variable that is set again keeps its place": {func(in *spec.Input, c *corev1.Container) {
			in.Image.Env = []string{"A=1", "B=2", "PATH=/bin"}
			c.Env = []corev1.EnvVar{{Name: "C", Value: "3"}, {Name: "A", Value: "4"}}
		}, []string{"PATH=/bin", "HOSTNAME=web", "A=4", "B=2", "C=3"}},
		"an entry of the image without a value removes": {func(in *spec.Input, _ *corev1.Container) {
			in.Image.Env = []string{"A=1", "HOSTNAME", "B=", "A", "NONE", "A=2"}
		}, []string{path, "B=", "A=2"}},
		"all others win over Services": {func(in *spec.Input, c *corev1.Container) {
			in.Services = map[string]string{"WEB_SERVICE_HOST": "10.96.0.10", "WEB_SERVICE_PORT": "80", "M_a": "service", "B": "service"}
			in.Image.Env = []string{"WEB_SERVICE_PORT=1"}
			c.EnvFrom = []corev1.EnvFromSource{{Prefix: "M_", ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: spectest.Named("app")}}}
			c.Env = []corev1.EnvVar{{Name: "B", Value: "at $(WEB_SERVICE_HOST)"}}
		}, []string{path, "HOSTNAME=web", "WEB_SERVICE_PORT=80", "B=at 10.96.0.10", "M_a=1", "M_b.c=2", "WEB_SERVICE_HOST=10.96.0.10"}},
		"objects come before variables, by name": {func(_ *spec.Input, c *corev1.Container) {
			c.EnvFrom = []corev1.EnvFromSource{
				{Prefix: "Z_", ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: spectest.Named("other")}},
				{Prefix: "M_", ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: spectest.Named("app")}},
			}
			c.Env = []corev1.EnvVar{{Name: "B", Value: "1"}}
		}, []string{path, "HOSTNAME=web", "M_a=1", "M_b.c=2", "Z_a=other", "B=1"}},
	} {
		got, _, err := resolved(t, tt.edit)
		if err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, %v, want %q", name, got, err, tt.want)
		}
	}
}

// TestReferencesAreToVariablesOfTheManifest: a kubelet does not know the environment of the image when it replaces $(NAME).
func TestReferencesAreToVariablesOfTheManifest(t *testing.T) {
	got, vars, err := resolved(t, func(in *spec.Input, c *corev1.Container) {
		in.Image.Env = []string{"IMAGE=1"}
		c.EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: spectest.Named("app")}}}
		c.Env = []corev1.EnvVar{{Name: "X", Value: "$(IMAGE) $(a) $(Y) $$(a)"}, {Name: "Y", Value: "<$(X)>"}}
	})
	if err != nil || !slices.Contains(got, "X=$(IMAGE) 1 $(Y) $(a)") || !slices.Contains(got, "Y=<$(IMAGE) 1 $(Y) $(a)>") {
		t.Errorf("%q, %v", got, err)
	}
	if _, image := vars["IMAGE"]; image || vars["X"] == "" || vars["a"] != "1" || len(vars) != 4 {
		t.Errorf("commands can refer to %v", vars)
	}
}

func TestAnEnvironmentThatNoProcessCanBeStartedWith(t *testing.T) {
	long := strings.Repeat("x", expand.MaxWord)
	big := spectest.BigMap("big", 1, expand.MaxWords)
	for name, tt := range map[string]struct {
		edit func(*spec.Input, *corev1.Container)
		want string
	}{
		"a variable of the image": {func(in *spec.Input, _ *corev1.Container) { in.Image.Env = []string{"A=" + long} }, "environment of the image: "},
		"a variable":              {func(_ *spec.Input, c *corev1.Container) { c.Env = []corev1.EnvVar{{Name: "A", Value: long}} }, `container "app": env[0] A: `},
		"a variable that grows by its references": {func(_ *spec.Input, c *corev1.Container) {
			c.Env = []corev1.EnvVar{{Name: "A", Value: long[:expand.MaxWord/2]}, {Name: "B", Value: "$(A)$(A)$(A)"}}
		}, `container "app": env[1] B: `},
		"all of them": {func(_ *spec.Input, c *corev1.Container) {
			for i := range 20 {
				c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("A%d", i), Value: long[:expand.MaxWord-10]})
			}
		}, `container "app": env[15] A15: arguments and variables together`},
		"a value of an object": {func(in *spec.Input, c *corev1.Container) {
			in.Refs.ConfigMaps["big"] = big
			c.EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: spectest.Named("big")}}}
		}, `container "app": envFrom: variable k0: `},
		"an object that is named again and again": {func(in *spec.Input, c *corev1.Container) {
			in.Refs.ConfigMaps["big"] = big
			for range 10 {
				c.EnvFrom = append(c.EnvFrom, corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: spectest.Named("big")}})
			}
		}, `container "app": envFrom[7]: the objects that variables come from have more than`},
	} {
		if _, _, err := resolved(t, tt.edit); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", name, err, tt.want)
		}
	}
	// A replaced variable does not count twice.
	if _, _, err := resolved(t, func(_ *spec.Input, c *corev1.Container) {
		for range 20 {
			c.Env = append(c.Env, corev1.EnvVar{Name: "A", Value: long[:expand.MaxWord-10]})
		}
	}); err != nil {
		t.Errorf("one variable, set 20 times: %v", err)
	}
}

// TestVariablesOfTooManyServicesAreNotCopied counts allocations: Services may have more variables than any process can be started with.
func TestVariablesOfTooManyServicesAreNotCopied(t *testing.T) {
	pod := spectest.Pod(nil)
	in := spectest.Input(pod, "app")
	in.Services = map[string]string{}
	for i := range 50_000 {
		in.Services[fmt.Sprintf("SERVICE_%d_PORT_80_TCP_ADDR", i)] = "10.96.0.10"
	}
	var err error
	n := testing.AllocsPerRun(1, func() { _, _, err = Resolve(in, &pod.Spec.Containers[0]) })
	if want := "variables of Services: together they have more than 524288 bytes"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	if n > 100 {
		t.Errorf("%.0f allocations", n)
	}
}

func TestErrorsNameTheVariable(t *testing.T) {
	for want, from := range map[string]corev1.EnvVarSource{
		"env A: field spec.unknown is not available to environment variables": {FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.unknown"}},
		"env A: unsupported container resource: limits.pods":                  {ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.pods"}},
		"env A: this kind of valueFrom is not supported by this release":      {},
	} {
		_, _, err := resolved(t, func(_ *spec.Input, c *corev1.Container) { c.Env = []corev1.EnvVar{{Name: "A", ValueFrom: &from}} })
		if err == nil || err.Error() != want || IsMissing(err) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestWhichContainersHaveSecretsAndFilesInTheirEnvironment(t *testing.T) {
	file := func(path string) corev1.EnvVar {
		return corev1.EnvVar{ValueFrom: &corev1.EnvVarSource{FileKeyRef: &corev1.FileKeySelector{VolumeName: "v", Path: path, Key: "K"}}}
	}
	secret := corev1.EnvVar{ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: spectest.Named("s")}}}
	for name, tt := range map[string]struct {
		c      corev1.Container
		secret bool
		files  []spec.EnvFile
	}{
		"none":             {corev1.Container{Env: []corev1.EnvVar{{Name: "A", Value: "1"}}}, false, nil},
		"a key":            {corev1.Container{Env: []corev1.EnvVar{{Name: "A", Value: "1"}, secret}}, true, nil},
		"a whole Secret":   {corev1.Container{EnvFrom: []corev1.EnvFromSource{{}, {SecretRef: &corev1.SecretEnvSource{}}}}, true, nil},
		"files, each once": {corev1.Container{Env: []corev1.EnvVar{file("b"), file("a"), file("b")}}, false, []spec.EnvFile{{Volume: "v", Path: "b"}, {Volume: "v", Path: "a"}}},
	} {
		if got := HasSecretEnv(&tt.c); got != tt.secret {
			t.Errorf("%s: Secrets %t", name, got)
		}
		if got := EnvFiles(&tt.c); !slices.Equal(got, tt.files) {
			t.Errorf("%s: files %v, want %v", name, got, tt.files)
		}
	}
}

func TestOfMissingObjectsTheKubeletsWordsAreKept(t *testing.T) {
	hidden := map[manifests.ObjectID]string{{Kind: "Secret", Namespace: "shop", Name: "theirs"}: "applied"}
	in := spec.Input{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}}, Refs: &manifests.Refs{Reader: "fleet", Hidden: hidden}}
	if err := Missing(in, "Secret", "theirs"); cause.Of(err).Kind != cause.NotShared || !IsMissing(err) {
		t.Errorf("%v", err)
	}
	for want, err := range map[string]error{
		`configmap "app" not found`: Missing(in, "ConfigMap", "app"), `secret "app" not found`: Missing(in, "Secret", "app"),
		"no key k": MissingKey("Secret", "app", "k", "no key %s", "k"),
	} {
		if err.Error() != want || !IsMissing(fmt.Errorf("env: %w", err)) {
			t.Errorf("%v, want %s; missing %t", err, want, IsMissing(err))
		}
	}
	if IsMissing(nil) || IsMissing(errors.New("not found")) {
		t.Error("any error is one of a missing object")
	}
}
