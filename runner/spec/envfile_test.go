package spec

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestVariablesOfAFile(t *testing.T) {
	for _, tt := range []struct {
		name, text, value string
		missing           bool
		err               string
	}{
		{name: "a value", text: "A='1'\nK='two words'\n", value: "two words"},
		{name: "without a line end", text: "K='v'", value: "v"},
		{name: "with carriage returns", text: "A='1'\r\nK='v'\r\n", value: "v"},
		{name: "blanks before it, a comment behind it", text: " \t K='v' # why\n", value: "v"},
		{name: "blank lines and comments", text: "\n \t\n# K='no'\n  # K='no'\nK='v'\n", value: "v"},
		{name: "several lines", text: "A='x\nK=no\n'\nK='one\n\n # two'\n", value: "one\n\n # two"},
		{name: "nothing is expanded", text: `K='$A ${B} \n \' # "x"'`, value: `$A ${B} \n \`},
		{name: "everything is taken as it is", text: `K='$A ${B} \n "x" a=b'`, value: `$A ${B} \n "x" a=b`},
		{name: "the first one counts", text: "K='1'\nK='2'\n", value: "1"},
		{name: "an empty one", text: "K=''\n", value: ""},
		{name: "a blank behind =", text: "A= 'x\nK= 'v'\n", value: ""},
		{name: "other keys", text: "KK='1'\nk='2'\n", missing: true},
		{name: "an empty file", text: "", missing: true},
		{name: "what follows does not matter", text: "K='v'\nnonsense\n", value: "v"},
		{name: "what comes before does", text: "A='1'\nnonsense\nK='v'\n", err: "line 2: no '=' in it"},
		{name: "no quotes", text: "K=v\n", err: "line 1: the value is not in single quotes"},
		{name: "nothing behind =", text: "K=\n", err: "line 1: the value is not in single quotes"},
		{name: "double quotes", text: "K=\"v\"\n", err: "line 1: the value is not in single quotes"},
		{name: "two quotes", text: "K='v''w'\n", err: "line 1: something follows the closing quote"},
		{name: "an open quote", text: "A='1'\nK='v\nw\n", err: "line 2: the quote is not closed"},
		{name: "a blank before =", text: "K ='v'\n", err: "line 1: a blank before '='"},
		{name: "no name", text: "='v'\n", err: "line 1: no name before '='"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			value, found, err := lookUp(tt.text, "K")
			if (err == nil) != (tt.err == "") || err != nil && err.Error() != tt.err {
				t.Fatalf("error %v, want %q", err, tt.err)
			}
			if err == nil && (value != tt.value || found == tt.missing) {
				t.Errorf("value %q, found %t", value, found)
			}
		})
	}
}

func FuzzVariablesOfAFile(f *testing.F) {
	f.Add("# c\nA='1\n2' # x\nK= \nB='", "K")
	f.Fuzz(func(t *testing.T, text, key string) {
		value, found, err := lookUp(text, key)
		if err == nil && found && !strings.Contains(strings.ReplaceAll(text, "\r\n", "\n"), value) && !strings.HasPrefix(text, "\r") {
			t.Errorf("value %q of %q", value, text)
		}
	})
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

func TestTheEnvironmentHasVariablesOfFiles(t *testing.T) {
	file := EnvFile{Volume: "config", Path: "app.env"}
	for _, tt := range []struct {
		name     string
		optional bool
		files    map[EnvFile]string
		want     string
		err      string
	}{
		{name: "a value", files: map[EnvFile]string{file: "K='$(NAME)'"}, want: "VALUE=$(NAME) AGAIN=<$(NAME)>"},
		{name: "no file", err: `env VALUE: volume "config" has no file "app.env"`},
		{name: "no file, optional", optional: true, want: "AGAIN=<$(VALUE)>"},
		{name: "no key", files: map[EnvFile]string{file: "A='1'"}, err: `env VALUE: couldn't find key K in file "app.env" of volume "config"`},
		{name: "no key, optional", optional: true, files: map[EnvFile]string{file: "A='1'"}, want: "AGAIN=<$(VALUE)>"},
		{name: "a bad file, optional", optional: true, files: map[EnvFile]string{file: "K=1"}, err: `env VALUE: file "app.env" of volume "config": line 1: the value is not in single quotes`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pod := fileEnvPod(tt.optional)
			pod.UID = "u"
			in := testInput(pod, "app")
			in.EnvFiles = tt.files
			s, err := Build(in)
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
	if got := EnvFiles(&fileEnvPod(false).Spec.Containers[0]); len(got) != 1 || got[0] != file {
		t.Errorf("files %v", got)
	}
}
