package registry

import (
	"os"
	"path/filepath"
	"testing"
)

func TestNormalize(t *testing.T) {
	const dig = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for name, tt := range map[string]struct{ in, want string }{
		"a bare name":                    {"busybox", "docker.io/library/busybox:latest"},
		"a user's repository":            {"me/app:2", "docker.io/me/app:2"},
		"another registry":               {"r.example:5000/a/b", "r.example:5000/a/b:latest"},
		"a digest makes a tag pointless": {"busybox:1" + dig, "docker.io/library/busybox" + dig},
		"docker's other name":            {"index.docker.io/library/a:1", "docker.io/library/a:1"},
		"capitals are not allowed":       {"Busybox", ""},
		"empty":                          {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Normalize(tt.in)
			if got != tt.want || (err == nil) != (tt.want != "") {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

func TestCredentials(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.json")
	conf := `{"auths":{
		"https://index.docker.io/v1/":{"auth":"aHViOnB3"},
		"r.example:5000":{"username":"u","password":"p"},
		"token.example":{"identitytoken":"tok"}}}`
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]string{
		"registry-1.docker.io": "hub/pw", "r.example:5000": "u/p", "token.example": "/tok", "other.example": "/",
	} {
		u, p, err := credentials(t.Context(), file, host)
		if err != nil || u+"/"+p != want {
			t.Errorf("%s: %s/%s, %v", host, u, p, err)
		}
	}
	for _, none := range []string{"", file + ".absent"} {
		if u, p, err := credentials(t.Context(), none, "r.example:5000"); u+p != "" || err != nil {
			t.Errorf("%q: %s/%s, %v", none, u, p, err)
		}
	}
}
