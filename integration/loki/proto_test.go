package loki

import (
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/snappy"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	_ "google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/httpclient"
	ours "github.com/forebay-log/forebay/loki"
)

// pushRequest returns the descriptor of the message PushRequest in push.proto of Loki's package
// pkg/push.
func pushRequest(t *testing.T) protoreflect.MessageDescriptor {
	t.Helper()
	str, msg := descriptorpb.FieldDescriptorProto_TYPE_STRING, descriptorpb.FieldDescriptorProto_TYPE_MESSAGE
	field := func(name string, n int32, ty descriptorpb.FieldDescriptorProto_Type, repeated bool, of string) *descriptorpb.FieldDescriptorProto {
		label := descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL
		if repeated {
			label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED
		}
		f := &descriptorpb.FieldDescriptorProto{Name: &name, Number: &n, Type: &ty, Label: &label}
		if of != "" {
			f.TypeName = &of
		}
		return f
	}
	message := func(name string, fields ...*descriptorpb.FieldDescriptorProto) *descriptorpb.DescriptorProto {
		return &descriptorpb.DescriptorProto{Name: &name, Field: fields}
	}
	fd, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("push.proto"), Package: proto.String("logproto"), Syntax: proto.String("proto3"),
		Dependency: []string{"google/protobuf/timestamp.proto"},
		MessageType: []*descriptorpb.DescriptorProto{
			message("PushRequest", field("streams", 1, msg, true, ".logproto.StreamAdapter"), field("format", 2, str, false, "")),
			message("StreamAdapter", field("labels", 1, str, false, ""), field("entries", 2, msg, true, ".logproto.EntryAdapter")),
			message("LabelPairAdapter", field("name", 1, str, false, ""), field("value", 2, str, false, "")),
			message("EntryAdapter", field("timestamp", 1, msg, false, ".google.protobuf.Timestamp"), field("line", 2, str, false, ""),
				field("structuredMetadata", 3, msg, true, ".logproto.LabelPairAdapter")),
		},
	}, protoregistry.GlobalFiles)
	if err != nil {
		t.Fatal(err)
	}
	return fd.Messages().ByName("PushRequest")
}

// The protobuf library decodes a push request of the driver and finds no unknown fields.
func TestGoldenWithProtobuf(t *testing.T) {
	var wire []byte
	s, err := ours.New(ours.Config{
		URL:           "http://x",
		Labels:        map[string]string{"app": "golden"},
		MetadataAttrs: []string{"k"},
		Limits:        ours.Limits{MaxAge: -1},
		HTTP: httpclient.Options{Client: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			wire, _ = io.ReadAll(r.Body)
			return &http.Response{StatusCode: 204, Body: http.NoBody, Request: r}, nil
		})}},
	})
	if err != nil {
		t.Fatal(err)
	}
	b := batch.Batch{Codec: s.Encoder().Codec()}
	for i, msg := range []string{"first", "zweite Größe \xff", strings.Repeat("x", 20000)} {
		rec, m, err := s.Encoder().Scope().Append(nil, &encode.Record{Time: time.Unix(1700000000, int64(i)), Message: msg,
			Attrs: []slog.Attr{slog.String("k", "v"+msg[:1]), slog.Int("n", i)}})
		if err != nil {
			t.Fatal(err)
		}
		b.Append(rec, 0, m)
	}
	if o := push(t, s, &b); !o.Open.Empty() || !o.Refused.Empty() {
		t.Fatal(o)
	}
	plain, err := snappy.Decode(nil, wire)
	if err != nil {
		t.Fatal(err)
	}
	m := dynamicpb.NewMessage(pushRequest(t))
	if err := proto.Unmarshal(plain, m); err != nil {
		t.Fatal(err)
	}
	js, err := protojson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.ReplaceAll(string(js), `, "`, `,"`)
	got = strings.ReplaceAll(got, `: `, `:`)
	for _, want := range []string{
		`"labels":"{app=\"golden\",\"level=`, `"timestamp":"2023-11-14T22:13:20.000000001Z"`,
		`"line":"{\"msg\":\"first\",\"k\":\"vf\",\"n\":0}"`, `"structuredMetadata":[{"name":"k","value":"vf"}]`,
	} {
		if !strings.Contains(strings.ReplaceAll(got, " ", ""), strings.ReplaceAll(want, `,\"level`, `,level`)) {
			t.Errorf("%.600s lacks %s", got, want)
		}
	}
	noUnknown(t, m)
}

func noUnknown(t *testing.T, m protoreflect.Message) {
	if n := len(m.GetUnknown()); n > 0 {
		t.Errorf("%s has %d bytes of unknown fields", m.Descriptor().Name(), n)
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsList() && f.Kind() == protoreflect.MessageKind:
			for i := range v.List().Len() {
				noUnknown(t, v.List().Get(i).Message())
			}
		case f.Kind() == protoreflect.MessageKind:
			noUnknown(t, v.Message())
		}
		return true
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
