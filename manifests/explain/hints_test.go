package explain_test

import (
	"strings"
	"testing"

	"monopod/manifests"
	"monopod/manifests/decode"
)

// aPod is a manifest with one container, at lines 1 to 6, and what follows it.
const aPod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - {name: a, image: b}\n"

func TestWhatToWriteInstead(t *testing.T) {
	t.Parallel()
	container := strings.TrimSuffix(aPod, "  - {name: a, image: b}\n") + "  - name: a\n    image: b\n"
	for _, c := range []struct{ name, text, want string }{
		{"a name in capitals", strings.Replace(aPod, "{name: a}", "{name: My_App}", 1), `:3:18: pod default/My_App: metadata.name: Invalid value: "My_App": ...; did you mean "my-app"?`},
		{"no name", strings.Replace(aPod, "{name: a}", "{}", 1), ":3:1: metadata.name: Required value; give it a name, as in metadata: {name: web}"},
		{"no image", strings.Replace(aPod, ", image: b", "", 1), ":6:5: pod default/a: spec.containers[0].image: Required value; set the image that it runs, as in image: docker.io/library/busybox:1.37"},
		{"a misspelled field that is missing", strings.Replace(aPod, "containers", "contAIN3rz", 1), `:5:3: pod default/a: spec.contAIN3rz: unknown field; did you mean "containers"?`},
		{"a field at the wrong place", strings.Replace(aPod, "  containers:\n  -", "containers:\n-", 1), ":5:1: pod default/a: containers: unknown field; there is a field of this name at spec.containers"},
		{"the wrong case of a word", strings.Replace(aPod, "spec:\n", "spec:\n  restartPolicy: always\n", 1), `spec.restartPolicy: Unsupported value: "always": supported values: "Always", "OnFailure", "Never"; did you mean "Always"?`},
		{"a mount without its volume", container + "    volumeMounts: [{name: dta, mountPath: /d}]\n  volumes: [{name: data}]\n", `Not found: "dta"; did you mean "data"?`},
		{"a mount without a volume", container + "    volumeMounts: [{name: dta, mountPath: /d}]\n", `Not found: "dta"; spec.volumes has no volume of that name`},
		{"a command in one", container + "    command: sleep 10\n", `found the string "sleep 10"; write it as a list: ["sleep", "10"]`},
		{"a command for a shell", container + "    command: echo $HOME\n", `write it as a list: ["sh", "-c", "echo $HOME"]`},
		{"arguments of a shell", container + "    command: [sh, -c]\n    args: [echo a: b]\n", "put it in quotes if it is text: a colon followed by a space makes a mapping"},
		{"a port", container + "    ports: [80]\n", "found the number 80; write {containerPort: 80}"},
		{"a port of Compose", container + "    ports: ['8080:80']\n", "write {hostPort: 8080, containerPort: 80}"},
		{"a variable of Compose", container + "    env: [COLOR=light blue]\n", `write {name: COLOR, value: "light blue"}`},
		{"a volume of Compose", container + "    volumeMounts: ['data:/var/data']\n", "write {name: data, mountPath: /var/data}"},
		{"a path without its key", aPod + "  volumes: [{name: v, hostPath: /srv}]\n", `found the string "/srv"; write {path: /srv}`},
		{"a user by name", aPod + "  securityContext: {runAsUser: www-data}\n", "use its numeric id: names of users and groups are only known inside the image"},
		{"a probe without its kind", container + "    livenessProbe: {path: /, port: 80}\n", "spec.containers[0].livenessProbe.port: unknown field; there is a field of this name at spec.containers[0].livenessProbe.httpGet.port"},
		{"half a name", container + "    livenessProbe: {exec: {command: [a]}, initialDelay: 5}\n", `initialDelay: unknown field; did you mean "initialDelaySeconds"?`},
		{"a colon that is missing", strings.Replace(aPod, "{name: a}", "\n  name a", 1), `found the string "name a"; separate the two with a colon and a space: name: a`},
		{"a file of Docker Compose", "services:\n  web: {image: nginx}\n", "this looks like a file of Docker Compose: write a Pod for each service, or have kompose convert it"},
		{"a schedule in words", "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: a}\nspec: {schedule: each day, jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: b}]}}}}}\n", `write minute, hour, day, month and weekday, as in "*/5 * * * *"`},
		{"a policy of podman's", container + "    imagePullPolicy: newer\n", "use Always, or IfNotPresent to start without network"},
		{"a path of the directory", aPod + "  volumes: [{name: v, hostPath: {path: ./data}}]\n", `:7:40: pod default/a: spec.volumes[0].hostPath.path: not supported: the string "./data" is a relative path; use an absolute path, as in "/srv/data"`},
		{"a directory of a volume", "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: a}\nspec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], hostPath: {path: data}}\n", `:4:81: persistentvolume a: spec.hostPath.path: not supported: the string "data" is a relative path`},
		{"a name with an underscore", strings.Replace(container, "{name: a}", "{name: my_app}", 1), `did you mean "my-app"?`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := said(t, c.text); !strings.Contains(got, c.want) {
				t.Errorf("%q is not in\n%s", c.want, got)
			}
		})
	}
}

// said is what is wrong with a text, with the rules for names left out.
func said(t *testing.T, text string) string {
	t.Helper()
	_, err := decode.All("f.yaml", []byte(text), decode.Options{})
	if err == nil {
		t.Fatalf("nothing is wrong with\n%s", text)
	}
	var b strings.Builder
	for _, e := range manifests.Errors(err) {
		line := e.Error()
		if from := strings.Index(line, "a lowercase RFC"); from >= 0 {
			line = line[:from] + "..." + line[strings.LastIndex(line, ")")+1:]
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

func TestAMissingFieldThatIsWrittenOtherwiseIsReportedOnce(t *testing.T) {
	t.Parallel()
	for _, text := range []string{strings.Replace(aPod, "containers", "contAIN3rz", 1), strings.Replace(aPod, "  containers:\n  -", "containers:\n-", 1)} {
		if got := said(t, text); strings.Count(got, "\n") != 1 {
			t.Errorf("more than one line:\n%s", got)
		}
	}
	if got := said(t, strings.Replace(aPod, "containers", "taste", 1)); !strings.Contains(got, "spec.containers: Required value; add at least one") {
		t.Error(got)
	}
}

func TestWhatIsUsuallyWrongWithYAML(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, text, want string }{
		{"no space behind a colon", "apiVersion:v1\nkind: Pod\n", "f.yaml:1: mapping values are not allowed in this context; add a space after the colon"},
		{"a colon in a value", "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a: b\n", "f.yaml:4: mapping values are not allowed in this context; put the value in quotes: it contains a colon and a space"},
		{"a stray line", "My first pod\napiVersion: v1\nkind: Pod\n", `f.yaml:1: mapping values are not allowed in this context; this line is not "key: value"`},
		{"too far to the right", "apiVersion: v1\n  kind: Pod\n", "f.yaml:2: mapping values are not allowed in this context; check the indentation"},
		{"not far enough", "a:\n  - b: 1\n   c: 2\n", "check the indentation"},
		{"an at sign", "a: 1\nowner: @me\n", "f.yaml:2: found character that cannot start any token; put the value in quotes: it starts with @"},
		{"a quote that is open", "a: \"b\nc: d\ne: f\n", "f.yaml:1: found unexpected end of stream; a quote that starts here is not closed"},
		{"a bracket that is open", "a: {b: c\nd: e\n", "a bracket is not closed, or a comma is missing"},
		{"a backslash", `a: "C:\windows"` + "\n", "in double quotes a backslash is an escape character"},
		{"a template", "name: {{ .Values.name }}\n", "f.yaml:1:7: a mapping cannot be a key; this looks like a template that has not been rendered"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := said(t, c.text); !strings.Contains(got, c.want) {
				t.Errorf("%q is not in\n%s", c.want, got)
			}
		})
	}
}
