package signature

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
)

// PayloadType is that of manifests in an envelope: a signature by the same key for something else vouches for nothing here.
const PayloadType = "application/vnd.monopod.manifests+yaml"

// versionComment begins the line of the version, in the comments before the first document.
const versionComment = "# monopod.dev/set-version:"

// envelope is a Dead Simple Signing Envelope, https://github.com/secure-systems-lab/dsse.
type envelope struct {
	PayloadType string     `json:"payloadType"`
	Payload     string     `json:"payload"`
	Signatures  signatures `json:"signatures"`
}

// maxSignatures is the maximum number of signatures in an envelope. Each one is compared with each key, which hashes the payload.
const maxSignatures = 16

// signatures are those of an envelope, as text.
type signatures []string

// UnmarshalJSON implements json.Unmarshaler. It stops at the limit, before the rest takes memory.
func (s *signatures) UnmarshalJSON(data []byte) error {
	*s = nil
	d := json.NewDecoder(bytes.NewReader(data))
	if first, err := d.Token(); err != nil || first != json.Delim('[') {
		return err // null, or another value, which is no signature
	}
	for d.More() {
		var one struct {
			Sig string `json:"sig"`
		}
		if len(*s) == maxSignatures {
			return fmt.Errorf("it has more than %d signatures", maxSignatures)
		}
		if err := d.Decode(&one); err != nil {
			return err
		}
		*s = append(*s, one.Sig)
	}
	return nil
}

// openEnvelope returns the manifests in an envelope and their version, if one of the keys signed it. Key ids are ignored, because they are
// not signed.
func openEnvelope(ctx context.Context, keys []ed25519.PublicKey, body []byte) ([]byte, uint64, error) {
	var e envelope
	if err := json.Unmarshal(body, &e); err != nil {
		return nil, 0, fmt.Errorf("not a DSSE envelope: %w", err)
	}
	if len(e.Signatures) == 0 {
		return nil, 0, errors.New("there is no signature in the envelope")
	}
	payload, err := decode(e.Payload)
	if err != nil {
		return nil, 0, errors.New("the payload of the envelope is not in base64")
	}
	if err := signedByOne(ctx, keys, &e, payload); err != nil {
		return nil, 0, err
	}
	if e.PayloadType != PayloadType {
		return nil, 0, fmt.Errorf("the envelope contains %q, not %s", e.PayloadType, PayloadType)
	}
	version, err := payloadVersion(payload)
	return payload, version, err
}

func signedByOne(ctx context.Context, keys []ed25519.PublicKey, e *envelope, payload []byte) error {
	signed := encoding(e.PayloadType, payload)
	for _, s := range e.Signatures {
		sig, err := decode(s)
		if err != nil {
			continue
		}
		for _, key := range keys {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if ed25519.Verify(key, signed, sig) {
				return nil
			}
		}
	}
	return errors.New("the envelope has no valid signature by a key of the source")
}

// encoding is what is signed: DSSE's "pre-authentication encoding".
func encoding(kind string, payload []byte) []byte {
	head := fmt.Sprintf("DSSEv1 %d %s %d ", len(kind), kind, len(payload))
	return append([]byte(head), payload...)
}

// decode reads either alphabet of base64, as envelopes may have.
func decode(text string) ([]byte, error) {
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return base64.URLEncoding.DecodeString(text)
	}
	return data, nil
}

// payloadVersion reads the version in the comments before the first document.
func payloadVersion(payload []byte) (uint64, error) {
	var found []byte
	for line := range bytes.Lines(payload) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' {
			break
		}
		text, ok := bytes.CutPrefix(line, []byte(versionComment))
		switch {
		case ok && found != nil:
			return 0, errors.New("the manifests in the envelope have two versions")
		case ok:
			found = append([]byte{}, bytes.TrimSpace(text)...)
		}
	}
	if found == nil {
		return 0, fmt.Errorf("the manifests in the envelope have no version, so that older ones could not be detected: begin them with the line %s NUMBER", versionComment)
	}
	return parseVersion(string(found))
}
