# The fields of openpilot's event log that a drive needs, under their ordinals. Ordinals may not be
# skipped: fields that stand before a needed one are declared by their size alone (gapN); the other
# members of the event's union share one pointer, so for them no size is needed.
@0xb1c4a3d05f7e9261;

struct Event {
  logMonoTime @0 :UInt64;  # ns
  gap67 @67 :Bool = true;
  union {
    gap1 @1 :Void; gap2 @2 :Void; gap3 @3 :Void; gap4 @4 :Void;
    gap5 @5 :Void; gap6 @6 :Void; gap7 @7 :Void; gap8 @8 :Void;
    gap9 @9 :Void; gap10 @10 :Void; gap11 @11 :Void; gap12 @12 :Void;
    gap13 @13 :Void; gap14 @14 :Void;
    roadEncodeIdx @15 :EncodeIndex;
    gap16 @16 :Void; gap17 @17 :Void; gap18 @18 :Void;
    liveCalibration @19 :LiveCalibration;
    gap20 @20 :Void; gap21 @21 :Void;
    carState @22 :CarState;
    gap23 @23 :Void; gap24 @24 :Void; gap25 @25 :Void; gap26 @26 :Void;
    gap27 @27 :Void; gap28 @28 :Void; gap29 @29 :Void; gap30 @30 :Void;
    gap31 @31 :Void; gap32 @32 :Void; gap33 @33 :Void; gap34 @34 :Void;
    gap35 @35 :Void; gap36 @36 :Void; gap37 @37 :Void; gap38 @38 :Void;
    gap39 @39 :Void; gap40 @40 :Void; gap41 @41 :Void; gap42 @42 :Void;
    gap43 @43 :Void; gap44 @44 :Void; gap45 @45 :Void; gap46 @46 :Void;
    gap47 @47 :Void;
    gap48 @48 :Void;
    gap49 @49 :Void; gap50 @50 :Void; gap51 @51 :Void; gap52 @52 :Void;
    gap53 @53 :Void; gap54 @54 :Void; gap55 @55 :Void; gap56 @56 :Void;
    gap57 @57 :Void; gap58 @58 :Void; gap59 @59 :Void; gap60 @60 :Void;
    gap61 @61 :Void; gap62 @62 :Void;
    cameraOdometry @63 :CameraOdometry;
    lateralPlan @64 :LateralPlan;
    gap65 @65 :Void; gap66 @66 :Void; gap68 @68 :Void; gap69 @69 :Void;
    gap70 @70 :Void; gap71 @71 :Void;
    gap72 @72 :Void;
    gap73 @73 :Void; gap74 @74 :Void; gap75 @75 :Void; gap76 @76 :Void;
    gap77 @77 :Void; gap78 @78 :Void; gap79 @79 :Void; gap80 @80 :Void;
    gap81 @81 :Void; gap82 @82 :Void; gap83 @83 :Void; gap84 @84 :Void;
    gap85 @85 :Void; gap86 @86 :Void; gap87 @87 :Void; gap88 @88 :Void;
    gap89 @89 :Void;
    qRoadEncodeIdx @90 :EncodeIndex;
    gap91 @91 :Void; gap92 @92 :Void; gap93 @93 :Void; gap94 @94 :Void;
    gap95 @95 :Void; gap96 @96 :Void; gap97 @97 :Void; gap98 @98 :Void;
    gap99 @99 :Void; gap100 @100 :Void; gap101 @101 :Void; gap102 @102 :Void;
    gap103 @103 :Void; gap104 @104 :Void; gap105 @105 :Void; gap106 @106 :Void;
    gap107 @107 :Void; gap108 @108 :Void; gap109 @109 :Void; gap110 @110 :Void;
    gap111 @111 :Void; gap112 @112 :Void; gap113 @113 :Void; gap114 @114 :Void;
    gap115 @115 :Void; gap116 @116 :Void; gap117 @117 :Void; gap118 @118 :Void;
    gap119 @119 :Void; gap120 @120 :Void; gap121 @121 :Void; gap122 @122 :Void;
    gap123 @123 :Void; gap124 @124 :Void; gap125 @125 :Void; gap126 @126 :Void;
    gap127 @127 :Void; gap128 @128 :Void;
    livePose @129 :LivePose;
    gap130 @130 :Void;
  }
}

struct CarState {
  gap0 @0 :AnyPointer;
  vEgo @1 :Float32;  # m/s
  gap2 @2 :AnyPointer;
  gap3 @3 :Float32;
  gap4 @4 :Bool;
  gap5 @5 :Float32;
  gap6 @6 :Bool;
  gap7 @7 :Float32;
  gap8 @8 :Float32;
  gap9 @9 :Bool;
  gap10 @10 :AnyPointer;
  gap11 @11 :AnyPointer;
  gap12 @12 :AnyPointer;
  gap13 @13 :AnyPointer;
  gap14 @14 :UInt16;
  gap15 @15 :Float32;
  gap16 @16 :Float32;
  gap17 @17 :Float32;
  gap18 @18 :Bool;
  gap19 @19 :Bool;
  gap20 @20 :Bool;
  gap21 @21 :Bool;
  yawRate @22 :Float32;  # rad/s, left positive
}

struct CameraOdometry {
  gap0 @0 :AnyPointer;
  rot @1 :List(Float32);  # rad/s, device frame: x forward, y right, z down
}

struct LiveCalibration {
  gap0 @0 :AnyPointer;
  oldStatus @1 :Int8;  # as calStatus, before that was there
  gap2 @2 :Int32;
  gap3 @3 :Int8;
  gap4 @4 :AnyPointer;
  gap5 @5 :AnyPointer;
  gap6 @6 :AnyPointer;
  rpyCalib @7 :List(Float32);  # rad: roll, pitch, yaw of the device in the frame of travel
  gap8 @8 :AnyPointer;
  gap9 @9 :Int32;
  gap10 @10 :AnyPointer;
  calStatus @11 :UInt16;  # uncalibrated, calibrated, invalid, recalibrating
  height @12 :List(Float32);  # m above the road
}

struct LateralPlan {
  gap0 @0 :Float32;
  gap1 @1 :AnyPointer;
  gap2 @2 :AnyPointer;
  gap3 @3 :Float32;
  gap4 @4 :AnyPointer;
  gap5 @5 :Float32;
  gap6 @6 :AnyPointer;
  gap7 @7 :Float32;
  gap8 @8 :Float32;
  gap9 @9 :Bool;
  gap10 @10 :Bool;
  gap11 @11 :Float32;
  gap12 @12 :Bool;
  gap13 @13 :Float32;
  gap14 @14 :Bool;
  gap15 @15 :Bool;
  gap16 @16 :Bool;
  desire @17 :UInt16;  # none, turn left, right, lane change left, right, keep left, right
}

struct EncodeIndex {
  gap0 @0 :UInt32;
  gap1 @1 :UInt16;
  gap2 @2 :UInt32;
  gap3 @3 :Int32;
  segmentId @4 :UInt32;  # picture in the segment's file, in the order of showing
  gap5 @5 :UInt32;
  gap6 @6 :UInt64;
  timestampEof @7 :UInt64;  # ns, when the picture is whole
}

struct LivePose {
  gap0 @0 :AnyPointer;
  gap1 @1 :AnyPointer;
  gap2 @2 :AnyPointer;
  angularVelocityDevice @3 :Axes;  # rad/s
}

struct Axes {
  gap0 @0 :Float32;
  gap1 @1 :Float32;
  z @2 :Float32;
  gap3 @3 :Float32;
  gap4 @4 :Float32;
  gap5 @5 :Float32;
  valid @6 :Bool;
}
