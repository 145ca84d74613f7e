package signature

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"aead.dev/minisign"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
)

const pods = "apiVersion: v1\nkind: Pod\n"

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// refused fails unless the answer is refused for the reason.
func refused(t *testing.T, c Config, body, detached, reason string) {
	t.Helper()
	payload, version, err := c.Verify(t.Context(), []byte(body), []byte(detached))
	if err == nil {
		t.Fatalf("accepted as version %d: %q", version, payload)
	}
	if !strings.Contains(err.Error(), reason) {
		t.Errorf("refused because %q, want %q", err, reason)
	}
}

func accepted(t *testing.T, c Config, body, detached string, want uint64, wantPayload string) {
	t.Helper()
	payload, version, err := c.Verify(t.Context(), []byte(body), []byte(detached))
	check(t, err)
	if version != want || string(payload) != wantPayload {
		t.Errorf("version %d: %q", version, payload)
	}
}

// The key and a signature of the word "test" with which implementations of minisign are tested.
const (
	knownKey       = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3"
	knownSignature = "untrusted comment: signature from minisign secret key\n" +
		"RUQf6LRCGA9i559r3g7V1qNyJDApGip8MfqcadIgT9CuhV3EMhHoN1mGTkUidF/z7SrlQgXdy8ofjb7bNJJylDOocrCo8KLzZwo=\n" +
		"trusted comment: timestamp:1556193335\tfile:test\n" +
		"y/rUw2y8/hOUYjZU71eHp/Wo1KZ40fGy2VJEDl34XMJM+TX48Ss/17u3IvIfbVR1FkZZSNCisQbuQY+bHwhEBg==\n"
)

func minisignPair(tb testing.TB) (minisign.PublicKey, minisign.PrivateKey) {
	tb.Helper()
	public, private, err := minisign.GenerateKey(rand.Reader)
	check(tb, err)
	return public, private
}

// minisigned signs as minisign does: the hash of the body.
func minisigned(private minisign.PrivateKey, body, comment string) string {
	r := minisign.NewReader(strings.NewReader(body))
	_, _ = new(bytes.Buffer).ReadFrom(r)
	return string(r.SignWithComments(private, comment, "of a test"))
}

func TestAMinisignSignatureVouchesForItsBytesAndVersion(t *testing.T) {
	public, private := minisignPair(t)
	other, _ := minisignPair(t)
	for name, keys := range map[string][]string{
		"its key":              {public.String()},
		"one of several":       {other.String(), public.String()},
		"as the program saves": {"untrusted comment: minisign public key\n" + public.String() + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			c := Config{Kind: Minisign, Keys: keys}
			accepted(t, c, pods, minisigned(private, pods, "version:7"), 7, pods)
			accepted(t, c, pods, minisigned(private, pods, "timestamp:1\tfile:pods.yaml\tversion:18446744073709551615 hashed"), 1<<64-1, pods)
			accepted(t, c, pods, string(minisign.SignWithComments(private, []byte(pods), "version:1", "of the old kind")), 1, pods)
			accepted(t, c, "", minisigned(private, "", "version:2"), 2, "")
		})
	}
}

func TestMinisignRefuses(t *testing.T) {
	public, private := minisignPair(t)
	other, foreign := minisignPair(t)
	c := Config{Kind: Minisign, Keys: []string{public.String()}}
	good := minisigned(private, pods, "version:7")
	lines := strings.Split(good, "\n")
	// impostor has the id of the key, but not the key.
	impostor := func() string {
		var s minisign.Signature
		check(t, s.UnmarshalText([]byte(minisigned(foreign, pods, "version:7"))))
		s.KeyID = public.ID()
		return s.String()
	}
	for name, tt := range map[string]struct{ body, signature, why string }{
		"nothing":                       {pods, "", "there is no signature"},
		"what is no signature":          {pods, "<html>not found</html>", "cannot be read"},
		"a cut-off one":                 {pods, strings.Join(lines[:2], "\n"), "cannot be read"},
		"another key":                   {pods, minisigned(foreign, pods, "version:7"), "not a key of the source"},
		"another key under the same id": {pods, impostor(), "does not match this answer"},
		"other bytes":                   {pods + "#", good, "does not match this answer"},
		"fewer bytes":                   {pods[:10], good, "does not match this answer"},
		"another version":               {pods, strings.Replace(good, "version:7", "version:8", 1), "does not match this answer"},
		"no version":                    {pods, minisigned(private, pods, "timestamp:1700000000\tfile:pods.yaml"), "no version"},
		"version 0":                     {pods, minisigned(private, pods, "version:0"), "not a version"},
		"a version below 0":             {pods, minisigned(private, pods, "version:-1"), "not a version"},
		"a version that is too large":   {pods, minisigned(private, pods, "version:18446744073709551616"), "not a version"},
		"an empty version":              {pods, minisigned(private, pods, "version:"), "empty"},
		"two versions":                  {pods, minisigned(private, pods, "version:1 version:2"), "two versions"},
		"the version in another word":   {pods, minisigned(private, pods, "subversion:9"), "no version"},
	} {
		t.Run(name, func(t *testing.T) { refused(t, c, tt.body, tt.signature, tt.why) })
	}
	t.Run("no flipped bit is accepted", func(t *testing.T) {
		for i := strings.Index(good, "\n"); i < len(good); i++ {
			changed := []byte(good)
			changed[i] ^= 1
			if _, v, err := c.Verify(t.Context(), []byte(pods), changed); err == nil && v != 7 {
				t.Errorf("byte %d: version %d", i, v)
			}
		}
	})
	refused(t, Config{Kind: Minisign, Keys: []string{other.String()}}, pods, good, "not a key of the source")
	refused(t, Config{Kind: Minisign}, pods, good, "not a key of the source")
}

func TestWhatThirdPartiesSignedIsRead(t *testing.T) {
	refused(t, Config{Kind: Minisign, Keys: []string{knownKey}}, "test", knownSignature, "no version") // valid, but it could be replayed
	refused(t, Config{Kind: Minisign, Keys: []string{knownKey}}, "tesd", knownSignature, "does not match this answer")
}

const versionedPods = "# monopod.dev/set-version: 7\n" + pods

// signer signs envelopes by the reference implementation of DSSE.
type signer struct {
	key ed25519.PrivateKey
	id  string
}

func newSigner(tb testing.TB) signer {
	tb.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	check(tb, err)
	return signer{key: key}
}

func (s signer) Sign(_ context.Context, data []byte) ([]byte, error) {
	return ed25519.Sign(s.key, data), nil
}
func (s signer) KeyID() (string, error)   { return s.id, nil }
func (s signer) Public() crypto.PublicKey { return s.key.Public() }
func (s signer) Verify(context.Context, []byte, []byte) error {
	return errors.New("not used")
}

func (s signer) text() string {
	return base64.StdEncoding.EncodeToString(s.key.Public().(ed25519.PublicKey))
}

func (s signer) pem(tb testing.TB) string {
	tb.Helper()
	return publicPEM(tb, s.key.Public())
}

func publicPEM(tb testing.TB, key crypto.PublicKey) string {
	tb.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	check(tb, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

func enveloped(tb testing.TB, kind, payload string, signers ...dsse.SignerVerifier) string {
	tb.Helper()
	var all []dsse.Signer
	for _, s := range signers {
		all = append(all, s)
	}
	by, err := dsse.NewEnvelopeSigner(all...)
	check(tb, err)
	e, err := by.SignPayload(tb.Context(), kind, []byte(payload))
	check(tb, err)
	return encoded(tb, e)
}

func encoded(tb testing.TB, e *dsse.Envelope) string {
	tb.Helper()
	out, err := json.Marshal(e)
	check(tb, err)
	return string(out)
}

func TestAnEnvelopeVouchesForItsPayloadAndVersion(t *testing.T) {
	s, other := newSigner(t), newSigner(t)
	for name, keys := range map[string][]string{
		"base64": {s.text()}, "PEM": {s.pem(t)}, "one of several": {other.text(), s.text()},
	} {
		t.Run(name, func(t *testing.T) {
			c := Config{Kind: DSSE, Keys: keys}
			accepted(t, c, enveloped(t, PayloadType, versionedPods, s), "", 7, versionedPods)
			accepted(t, c, enveloped(t, PayloadType, versionedPods, newSigner(t), s), "", 7, versionedPods)
			accepted(t, c, enveloped(t, PayloadType, versionedPods, signer{s.key, "any id"}), "", 7, versionedPods)
			late := "# written by hand\n\n#   more\n# monopod.dev/set-version:12\n---\n" + pods
			accepted(t, c, enveloped(t, PayloadType, late, s), "", 12, late)
		})
	}
	var e dsse.Envelope
	check(t, json.Unmarshal([]byte(enveloped(t, PayloadType, versionedPods+"# \xff\xfe\xfb", s)), &e))
	raw, err := base64.StdEncoding.DecodeString(e.Payload)
	check(t, err)
	e.Payload = base64.URLEncoding.EncodeToString(raw)
	accepted(t, Config{Kind: DSSE, Keys: []string{s.text()}}, encoded(t, &e), "", 7, string(raw))
}

func TestTheEncodingThatIsSignedIsThatOfTheProtocol(t *testing.T) {
	if got := string(encoding("http://example.com/HelloWorld", []byte("hello world"))); got != "DSSEv1 29 http://example.com/HelloWorld 11 hello world" {
		t.Errorf("%q", got)
	}
}

func TestAnEnvelopeIsRefused(t *testing.T) {
	s, foreign := newSigner(t), newSigner(t)
	c := Config{Kind: DSSE, Keys: []string{s.text()}}
	with := func(change func(*dsse.Envelope)) string {
		var e dsse.Envelope
		check(t, json.Unmarshal([]byte(enveloped(t, PayloadType, versionedPods, s)), &e))
		change(&e)
		return encoded(t, &e)
	}
	for name, tt := range map[string]struct{ body, why string }{
		"no bytes":                 {"", "not a DSSE envelope"},
		"bare manifests":           {pods, "not a DSSE envelope"},
		"a cut-off one":            {enveloped(t, PayloadType, versionedPods, s)[:50], "not a DSSE envelope"},
		"another JSON":             {"{}", "no signature"},
		"no signature":             {with(func(e *dsse.Envelope) { e.Signatures = nil }), "no signature"},
		"a signature of no bytes":  {with(func(e *dsse.Envelope) { e.Signatures[0].Sig = "" }), "no valid signature"},
		"a signature of other use": {with(func(e *dsse.Envelope) { e.Signatures[0].Sig = "!" }), "no valid signature"},
		"another key":              {enveloped(t, PayloadType, versionedPods, foreign), "no valid signature"},
		"another key with the id":  {enveloped(t, PayloadType, versionedPods, signer{foreign.key, s.text()}), "no valid signature"},
		"another payload": {with(func(e *dsse.Envelope) {
			e.Payload = base64.StdEncoding.EncodeToString([]byte(strings.Replace(versionedPods, "7", "8", 1)))
		}), "no valid signature"},
		"a payload not in base64":      {with(func(e *dsse.Envelope) { e.Payload = "#" }), "not in base64"},
		"a type that was changed":      {with(func(e *dsse.Envelope) { e.PayloadType = "application/x" }), "no valid signature"},
		"another type":                 {enveloped(t, "application/vnd.in-toto+json", versionedPods, s), "application/vnd.in-toto+json"},
		"no version":                   {enveloped(t, PayloadType, pods, s), "no version"},
		"a version after a document":   {enveloped(t, PayloadType, pods+versionedPods, s), "no version"},
		"version 0":                    {enveloped(t, PayloadType, "# monopod.dev/set-version: 0\n", s), "not a version"},
		"a version that is no number":  {enveloped(t, PayloadType, "# monopod.dev/set-version: 1.2\n", s), "not a version"},
		"an empty version":             {enveloped(t, PayloadType, "# monopod.dev/set-version:\n", s), "not a version"},
		"two versions":                 {enveloped(t, PayloadType, "# monopod.dev/set-version: 9\n"+versionedPods, s), "two versions"},
		"signatures that are no list":  {`{"payloadType":"x","payload":"","signatures":{"sig":"AA=="}}`, "no signature"},
		"signed, but as minisign does": {minisignedBy(t, versionedPods), "not a DSSE envelope"},
	} {
		t.Run(name, func(t *testing.T) { refused(t, c, tt.body, "", tt.why) })
	}
	refused(t, Config{Kind: DSSE}, enveloped(t, PayloadType, versionedPods, s), "", "no valid signature")
}

// TestAnEnvelopeHasFewSignatures: each one costs a hash of the payload for each key, and an answer has room for a hundred thousand.
func TestAnEnvelopeHasFewSignatures(t *testing.T) {
	s := newSigner(t)
	c := Config{Kind: DSSE, Keys: []string{s.text()}}
	var e dsse.Envelope
	check(t, json.Unmarshal([]byte(enveloped(t, PayloadType, versionedPods, s)), &e))
	valid, invalid := e.Signatures[0], dsse.Signature{Sig: base64.StdEncoding.EncodeToString(make([]byte, ed25519.SignatureSize))}
	with := func(invalids int) string {
		e.Signatures = append(slices.Repeat([]dsse.Signature{invalid}, invalids), valid)
		return encoded(t, &e)
	}
	accepted(t, c, with(15), "", 7, versionedPods)
	refused(t, c, with(16), "", "more than 16 signatures")
	refused(t, c, with(100_000), "", "more than 16 signatures")
}

// TestVerifyingEndsWithItsContext: the answer is as large as a stranger likes, and the agent may be told to stop.
func TestVerifyingEndsWithItsContext(t *testing.T) {
	public, private := minisignPair(t)
	s := newSigner(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped")
	cancel(stopped)
	_, _, err := Config{Kind: DSSE, Keys: []string{s.text()}}.Verify(ctx, []byte(enveloped(t, PayloadType, versionedPods, s)), nil)
	_, _, miniErr := Config{Kind: Minisign, Keys: []string{public.String()}}.Verify(ctx, []byte(pods), []byte(minisigned(private, pods, "version:7")))
	if !errors.Is(err, stopped) || !errors.Is(miniErr, stopped) {
		t.Errorf("%v; %v", err, miniErr)
	}
}

func minisignedBy(t *testing.T, body string) string {
	t.Helper()
	_, private := minisignPair(t)
	return minisigned(private, body, "version:1")
}

func TestKeysAreCheckedAndReadFromFilesAtEachAnswer(t *testing.T) {
	public, private := minisignPair(t)
	old, _ := minisignPair(t)
	path := filepath.Join(t.TempDir(), "fleet.pub")
	c := Config{Kind: Minisign, KeyFiles: []string{path}}
	signed := minisigned(private, pods, "version:3")
	refused(t, c, pods, signed, "no such file")
	save := func(text string) { check(t, os.WriteFile(path, []byte(text), 0o600)) }
	save(old.String())
	refused(t, c, pods, signed, "not a key of the source")
	save("garbage")
	refused(t, c, pods, signed, path+": not a public key of minisign")
	save("untrusted comment: of the fleet\n" + public.String() + "\n")
	accepted(t, c, pods, signed, 3, pods)

	s := newSigner(t)
	path = filepath.Join(t.TempDir(), "fleet.pem")
	save(s.pem(t))
	accepted(t, Config{Kind: DSSE, KeyFiles: []string{path}}, enveloped(t, PayloadType, versionedPods, s), "", 7, versionedPods)
}

func TestCheckKey(t *testing.T) {
	public, _ := minisignPair(t)
	s := newSigner(t)
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	for name, tt := range map[string]struct{ kind, text, why string }{
		"minisign":                {Minisign, public.String(), ""},
		"minisign, cut off":       {Minisign, public.String()[:20], "not a public key of minisign"},
		"minisign, another kind":  {Minisign, s.text(), "not a public key of minisign"},
		"dsse in base64":          {DSSE, s.text(), ""},
		"dsse in PEM":             {DSSE, s.pem(t), ""},
		"dsse, another curve":     {DSSE, publicPEM(t, curve.Public()), "not an ed25519 key"},
		"dsse, a key of minisign": {DSSE, public.String(), "neither"},
		"dsse, broken PEM":        {DSSE, "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "asn1"},
		"nothing":                 {DSSE, "", "neither"},
	} {
		t.Run(name, func(t *testing.T) {
			err := CheckKey(tt.kind, tt.text)
			if (err == nil) != (tt.why == "") || err != nil && !strings.Contains(err.Error(), tt.why) {
				t.Errorf("%v, want %q", err, tt.why)
			}
		})
	}
}

func FuzzNothingUnsignedIsAccepted(f *testing.F) {
	public, private := minisignPair(f)
	s := newSigner(f)
	mini, env := Config{Kind: Minisign, Keys: []string{public.String()}}, Config{Kind: DSSE, Keys: []string{s.text()}}
	f.Add([]byte(pods), []byte(minisigned(private, pods, "version:7")))
	f.Add([]byte(enveloped(f, PayloadType, versionedPods, s)), []byte{})
	f.Fuzz(func(t *testing.T, body, detached []byte) {
		if payload, version, err := mini.Verify(t.Context(), body, detached); err == nil && (string(payload) != pods || version != 7) {
			t.Errorf("minisign: version %d of %q", version, payload)
		}
		if payload, version, err := env.Verify(t.Context(), body, nil); err == nil && (string(payload) != versionedPods || version != 7) {
			t.Errorf("dsse: version %d of %q", version, payload)
		}
	})
}
