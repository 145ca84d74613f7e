package build

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/runner/spec"
	"monopod/runner/spec/environ"
	"monopod/runner/spec/spectest"
)

func TestTheEnvironmentHasVariablesOfFiles(t *testing.T) {
	file := spec.EnvFile{Volume: "config", Path: "app.env"}
	for _, tt := range []struct {
		name     string
		optional bool
		files    map[spec.EnvFile]string
		want     string
		err      string
	}{
		{name: "a value", files: map[spec.EnvFile]string{file: "K='$(NAME)'"}, want: "VALUE=$(NAME) AGAIN=<$(NAME)>"},
		{name: "no file", err: `env VALUE: volume "config" has no file "app.env"`},
		{name: "no file, optional", optional: true, want: "AGAIN=<$(VALUE)>"},
		{name: "no key", files: map[spec.EnvFile]string{file: "A='1'"}, err: `env VALUE: couldn't find key K in file "app.env" of volume "config"`},
		{name: "no key, optional", optional: true, files: map[spec.EnvFile]string{file: "A='1'"}, want: "AGAIN=<$(VALUE)>"},
		{name: "a bad file, optional", optional: true, files: map[spec.EnvFile]string{file: "K=1"}, err: `env VALUE: file "app.env" of volume "config": line 1: the value is not in single quotes`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pod := fileEnvPod(tt.optional)
			pod.UID = "u"
			in := spectest.Input(pod, "app")
			in.EnvFiles = tt.files
			s, err := Spec(in)
			if tt.err != "" {
				if err == nil || err.Error() != tt.err {
					t.Errorf("error %v, want %s", err, tt.err)
				}
				if err := Check(in); err != nil {
					t.Errorf("before the file is written: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(s.Process.Env[2:], " "); got != tt.want {
				t.Errorf("environment %s, want %s", got, tt.want)
			}
		})
	}
	if got := environ.EnvFiles(&fileEnvPod(false).Spec.Containers[0]); len(got) != 1 || got[0] != file {
		t.Errorf("files %v", got)
	}
}

// fileEnvPod has one variable that is read from a file.
func fileEnvPod(optional bool) *corev1.Pod {
	ref := &corev1.FileKeySelector{VolumeName: "config", Path: "app.env", Key: "K", Optional: &optional}
	return &corev1.Pod{Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "app", Image: "web", Env: []corev1.EnvVar{
			{Name: "VALUE", ValueFrom: &corev1.EnvVarSource{FileKeyRef: ref}},
			{Name: "AGAIN", Value: "<$(VALUE)>"},
		}}},
		Volumes: []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
	}}
}
