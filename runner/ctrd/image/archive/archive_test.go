package archive

import "testing"

func TestImageName(t *testing.T) {
	for name, tt := range map[string]struct{ stem, ref, want string }{
		"a full name":                        {"x", "example.com/a/b:1", "example.com/a/b:1"},
		"a short name with tag":              {"x", "web:1", "docker.io/library/web:1"},
		"a bare word is an image":            {"x", "web", "docker.io/library/web:latest"},
		"a version is a tag":                 {"web", "1.2", "docker.io/library/web:1.2"},
		"so is a version with v":             {"web", "v3", "docker.io/library/web:v3"},
		"and latest":                         {"web", "latest", "docker.io/library/web:latest"},
		"no name: the file's":                {"web", "", "docker.io/library/web:latest"},
		"no name: the file's with version":   {"web_1.2", "", "docker.io/library/web:1.2"},
		"a tag wins over the file's version": {"web_1.2", "1.3", "docker.io/library/web:1.3"},
		"capitals of a file name":            {"Web", "", "docker.io/library/web:latest"},
		"an underscore without version":      {"my_web", "", "docker.io/library/my_web:latest"},
		"impossible":                         {"x", "a b", ""},
		"impossible file name":               {"a b", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ImageName(tt.stem, tt.ref)
			if got != tt.want || (err == nil) != (tt.want != "") {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

func TestStem(t *testing.T) {
	for path, want := range map[string]string{
		"/d/a.tar": "a", "/d/a.b.tar.gz": "a.b", "/d/a.tgz": "a", "/d/a.tar.zst": "a",
		"/d/.a.tar": "", "/d/a.zip": "", "/d/a.tar.part": "", "/d/.tar": "", "/d/a.tar~": "",
	} {
		if got, ok := Stem(path); got != want || ok != (want != "") {
			t.Errorf("%s: %q, %v", path, got, ok)
		}
	}
}
