package imagestore

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"monopod/internal/cause"
	"monopod/internal/jsonlimit"
	"monopod/runner"
	"monopod/runner/ctrd/image"
	"monopod/runner/ctrd/image/registry"
)

func TestPullErrorsAreClassified(t *testing.T) {
	const ref = "registry.example/app:1"
	for text, want := range map[string]cause.Cause{
		"registry.example/app:1: not found": {Kind: cause.ImageNotFound},
		"unexpected status from HEAD request to https://registry.example/v2/app/manifests/1: 404 Not Found":                                                       {Kind: cause.ImageNotFound, Answer: "404 Not Found"},
		"could not fetch content descriptor sha256:00 (application/vnd.oci.image.layer.v1.tar+gzip) from remote: not found":                                       {Kind: cause.ImageNotFound},
		"content at https://registry.example/v2/app/manifests/sha256:00 not found: not found":                                                                     {Kind: cause.ImageNotFound},
		"unexpected status from HEAD request to https://registry.example/v2/app/manifests/1: 401 Unauthorized":                                                    {Kind: cause.ImageUnauthorized, Answer: "401 Unauthorized"},
		"pull access denied, repository does not exist or may require authorization: server message: insufficient_scope: authorization failed":                    {Kind: cause.ImageUnauthorized},
		"failed to authorize: failed to fetch oauth token: something new":                                                                                         {Kind: cause.ImageUnauthorized},
		"failed to authorize: failed to fetch anonymous token: unable to decode token response: the answer is " + registry.ErrTooLarge.Error():                    {Kind: cause.ImagePull},
		"failed to authorize: failed to fetch oauth token: unable to decode token response: the JSON has more than 50000 values: " + jsonlimit.ErrTooMany.Error(): {Kind: cause.ImagePull},
		"unexpected status from HEAD request to https://registry.example/v2/app/manifests/1: 403 Forbidden":                                                       {Kind: cause.ImageForbidden, Answer: "403 Forbidden"},
		"unexpected status from GET request to https://registry.example/v2/app/manifests/1: 429 Too Many Requests: toomanyrequests: You have reached your pull rate limit": {
			Kind: cause.ImageRateLimited, Answer: "429 Too Many Requests",
		},
		"no match for platform in manifest sha256:00: not found":                                                      {Kind: cause.ImagePlatform},
		"unexpected status from HEAD request to https://registry.example/v2/app/manifests/1: 503 Service Unavailable": {Kind: cause.RegistryError, Answer: "503 Service Unavailable"},
		`failed to do request: Head "https://registry.example/v2/app/manifests/1": dial tcp: lookup registry.example on 127.0.0.53:53: no such host`: {
			Kind: cause.RegistryUnknown, Server: "registry.example", Detail: "lookup registry.example on 127.0.0.53:53: no such host",
		},
		`failed to authorize: failed to fetch anonymous token: Get "https://auth.example/token": dial tcp: lookup auth.example: Temporary failure in name resolution`: {
			Kind: cause.RegistryUnknown, Fault: cause.Resolver, Server: "auth.example", Detail: "lookup auth.example: Temporary failure in name resolution",
		},
		`failed to do request: Head "https://registry.example/v2/app/manifests/1": dial tcp: lookup registry.example on 127.0.0.1:53: read udp 127.0.0.1:41234->127.0.0.1:53: read: connection refused`: {
			Kind: cause.RegistryUnknown, Fault: cause.Resolver, Server: "registry.example", Detail: "lookup registry.example on 127.0.0.1:53: read udp 127.0.0.1:41234->127.0.0.1:53: read: connection refused",
		},
		`failed to do request: Head "https://registry.example/v2/app/manifests/1": dial tcp: lookup registry.example on 192.0.2.53:53: dial udp 192.0.2.53:53: connect: network is unreachable`: {
			Kind: cause.RegistryUnknown, Fault: cause.Resolver, Server: "registry.example", Detail: "lookup registry.example on 192.0.2.53:53: dial udp 192.0.2.53:53: connect: network is unreachable",
		},
		`failed to do request: Head "https://registry.example/v2/app/manifests/1": dial tcp: lookup registry.example on 127.0.0.53:53: server misbehaving`: {
			Kind: cause.RegistryUnknown, Fault: cause.Resolver, Server: "registry.example", Detail: "lookup registry.example on 127.0.0.53:53: server misbehaving",
		},
		`failed to do request: Head "https://registry.example/v2/app/manifests/1": proxyconnect tcp: dial tcp 192.0.2.8:3128: connect: connection refused`: {
			Kind: cause.RegistryUnreachable, Fault: cause.Proxy, Server: "192.0.2.8:3128", Detail: "connect: connection refused",
		},
		`failed to do request: Head "https://registry.example/v2/app/manifests/1": proxyconnect tcp: dial tcp: lookup proxy.example on 127.0.0.53:53: no such host`: {
			Kind: cause.RegistryUnknown, Fault: cause.Proxy, Server: "proxy.example", Detail: "lookup proxy.example on 127.0.0.53:53: no such host",
		},
		`failed to do request: Head "https://registry.example/v2/app/manifests/1": dial tcp 192.0.2.1:443: connect: no route to host`: {
			Kind: cause.RegistryUnreachable, Server: "192.0.2.1:443", Detail: "connect: no route to host",
		},
		`failed to do request: Head "https://registry.example/v2/app/manifests/1": EOF`: {
			Kind: cause.RegistryUnreachable, Detail: `Head "https://registry.example/v2/app/manifests/1": EOF`,
		},
		`failed to do request: Head "https://registry.example/v2/app/manifests/1": tls: failed to verify certificate: x509: certificate signed by unknown authority`: {
			Kind: cause.RegistryCertificate, Detail: "x509: certificate signed by unknown authority",
		},
		`failed to do request: Head "https://registry.example/v2/app/manifests/1": http: server gave HTTP response to HTTPS client`: {Kind: cause.RegistryNotTLS},
		"no data from the registry for 5 minutes: context canceled":                                                                 {Kind: cause.ImageStalled},
		"the disk is too full for it: 1100 MiB are free at /var/lib/monopod/containerd, and 1200 must remain free: resource exhausted": {
			Kind: cause.NoSpace, Fault: cause.Reserved, Detail: "the disk is too full for it: 1100 MiB are free at /var/lib/monopod/containerd, and 1200 must remain free: resource exhausted",
		},
		"write /var/lib/monopod/x: no space left on device": {Kind: cause.NoSpace, Detail: "write /var/lib/monopod/x: no space left on device"},
		"some unknown error":                           {Kind: cause.ImagePull},
		"content digest sha256:00: not found":          {Kind: cause.ImagePull},
		"snapshot sha256:00 does not exist: not found": {Kind: cause.ImagePull},
	} {
		err := fmt.Errorf("pull image %q: failed to resolve reference %q: %w", ref, ref, errors.New(text))
		want.Image, want.Registry = ref, "registry.example"
		if want.Detail == "" {
			want.Detail = err.Error()
		}
		if got := classify(ref, runner.ReasonErrImagePull, err); got != want {
			t.Errorf("%s:\n%+v, want\n%+v", text, got, want)
		}
	}
	if got := classify(ref, runner.ReasonErrImagePull, fmt.Errorf("write: %w", unix.ENOSPC)); got.Kind != cause.NoSpace {
		t.Errorf("an errno: %+v", got)
	}
}

func TestAnArtifactIsNotCalledDamaged(t *testing.T) {
	for _, reason := range []string{runner.ReasonErrImagePull, runner.ReasonImageInspectError} {
		if got := classify("rules:1", reason, fmt.Errorf("inspect image %q: %w", "rules:1", image.ErrArtifact)); got.Kind != cause.ImageArtifact || got.Image != "rules:1" {
			t.Errorf("%s: %+v", reason, got)
		}
	}
}

func TestAMirrorWithWrongContentIsNamed(t *testing.T) {
	down := errors.New(`failed to do request: Head "https://registry.example/v2/app/manifests/1": dial tcp 192.0.2.1:443: connect: no route to host`)
	wrong := errors.New("unexpected status from HEAD request to http://mirror.example/v2/app/manifests/1: 401 Unauthorized")
	err := fmt.Errorf("pull image %q: %w", "app:1", &registry.MirrorError{Hosts: "mirror.example", Mirror: wrong, Err: down})
	want := cause.Cause{
		Kind: cause.RegistryUnreachable, Image: "registry.example/app:1", Registry: "registry.example", Mirror: "mirror.example", Server: "192.0.2.1:443",
		Detail: "connect: no route to host",
	}
	if got := classify("registry.example/app:1", runner.ReasonErrImagePull, err); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestOtherImageErrorsAreClassified(t *testing.T) {
	for _, tt := range []struct {
		reason, text string
		want         cause.Kind
	}{
		{runner.ReasonErrImageNeverPull, `Container image "app:1" is not present with pull policy of Never`, cause.ImageNeverPull},
		{runner.ReasonInvalidImageName, `couldn't parse image name "A B": invalid reference format`, cause.ImageName},
		{runner.ReasonImageInspectError, `inspect image "app:1": content digest sha256:00: not found`, cause.ImageBroken},
		{runner.ReasonImageInspectError, `inspect image "app:1": the disk is too full for it: 10 MiB are free at /d, and 12 must remain free: resource exhausted`, cause.NoSpace},
		{runner.ReasonImageNotAllowed, "imagePolicy does not allow image app:1: no rule matches it", cause.ImageNotAllowed},
		{runner.ReasonSignatureValidationFailed, `image "app:1": signature validation failed: app@sha256:1 has no signature`, cause.ImageUnsigned},
	} {
		if got := classify("app:1", tt.reason, errors.New(tt.text)); got.Kind != tt.want || got.Registry != "docker.io" || got.Image != "app:1" {
			t.Errorf("%s: %+v, want %s", tt.text, got, tt.want)
		}
	}
}

// TestLocalNotFoundIsNotAMissingImage: content that containerd does not find locally is not missing at the registry.
func TestLocalNotFoundIsNotAMissingImage(t *testing.T) {
	for text, want := range map[string]cause.Kind{
		`pull image "app:1": docker.io/library/app:1: not found`:                                               cause.ImageNotFound,
		`pull image "r.example:5000/app@sha256:00": r.example:5000/app@sha256:00: not found`:                   cause.ImageNotFound,
		`pull image "app:1": could not fetch content sha256:00 from remote: not found`:                         cause.ImageNotFound,
		`pull image "app:1": content at https://r.example/v2/app/blobs/sha256:00 not found: not found`:         cause.ImageNotFound,
		`pull image "app:1": no match for platform in manifest sha256:00: not found`:                           cause.ImagePlatform,
		`pull image "app:1": unexpected status from HEAD request to https://r.example/: 401 Unauthorized`:      cause.ImageUnauthorized,
		`pull image "app:1": content digest sha256:00: not found`:                                              cause.ImagePull,
		`pull image "r.example/app:1": image "r.example/app:1": not found`:                                     cause.ImagePull,
		`pull image "app:1": lease "k8s/1": not found`:                                                         cause.ImagePull,
		`pull image "app:1": failed to extract layer: snapshot monopod/12/extract-1 does not exist: not found`: cause.ImagePull,
		`pull image "app:1": failed to stat snapshot: snapshot monopod/12/sha256:00: not found`:                cause.ImagePull,
		`pull image "app:1": blob sha256:a429b401 is damaged; sha256:c404 and 403f`:                            cause.ImagePull,
		`pull image "app:1": dial tcp: lookup r.example: no such host`:                                         cause.RegistryUnknown,
	} {
		if got := classify("app:1", runner.ReasonErrImagePull, errors.New(text)); got.Kind != want {
			t.Errorf("%s: %s, want %s", text, got.Kind, want)
		}
	}
}
