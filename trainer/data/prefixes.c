/* Lists of words between spaces. A word with a full stop inside ("z.B.") needs no entry: it keeps its last one anyway. */
#include "data/prefixes.h"

#include <string.h>

struct prefixes {
    const char *language;
    const char *always;
    const char *before_number; /* only if a number follows; NULL: none */
};

#define LATIN " A B C D E F G H I J K L M N O P Q R S T U V W X Y Z "
#define SMALL "a b c d e f g h i j k l m n o p q r s t u v w x y z "
#define ROMAN_SMALL "i ii iii iv v vi vii viii ix x xi xii xiii xiv xv xvi xvii xviii xix xx "
#define ROMAN "I II III IV V VI VII VIII IX X XI XII XIII XIV XV XVI XVII XVIII XIX XX "

/* German ordinal numbers: "der 3. Oktober". */
#define ORDINALS                                                                                                         \
    "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 " \
    "42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71 72 73 74 75 76 77 78 "    \
    "79 80 81 82 83 84 85 86 87 88 89 90 91 92 93 94 95 96 97 98 99 "

static const prefixes all[] = {
    {"en",
     LATIN "Adj Adm Adv Asst Bart Bldg Brig Bros Capt Cmdr Col Comdr Con Corp Cpl DR Dr Drs Ens Gen Gov Hon Hr Hosp "
           "Insp Lt MM MR MRS MS Maj Messrs Mlle Mme Mr Mrs Ms Msgr Op Ord Pfc Ph Prof Pvt Rep Reps Res Rev Rt Sen "
           "Sens Sfc Sgt Sr St Supt Surg v vs rev Nos Nr Jan Feb Mar Apr Jun Jul Aug Sep Oct Nov Dec ",
     " No Art pp "},
    {"de",
     LATIN SMALL ROMAN ROMAN_SMALL ORDINALS
     "Adj Adm Adv Asst Bart Bldg Brig Bros Capt Cmdr Col Comdr Con Corp Cpl DR Dr Ens Gen Gov Hon Hosp Insp Lt "
     "MM MR MRS MS Maj Messrs Mlle Mme Mr Mrs Ms Msgr Op Ord Pfc Ph Prof Pvt Rep Reps Res Rev Rt Sen Sens Sfc "
     "Sgt Sr St Supt Surg Mio Mrd bzw usw ca Art Nr Std Ca dgl etc evtl ff ggf sog sogen usf vgl zzt No Nos Ges Frl Jr "
     "bzgl Chr Co Ltd Dkr dergl jun sen MwSt Buchst Zt pp spp vs ",
     NULL},
    {"fr",
     LATIN "b c d e f g h i j k l m n o p q r s t u v w x y z "
           "art ann apr av auj lib boul ca cf chap contr éd env etc ex fasc fém fig fr hab ibid id inf MM pl pp sing "
           "sq sqq suiv sup suppl tél vol vs al dir masc ms sec sect ",
     NULL},
    {"es",
     LATIN "c p s Av Bco Da Dep Dn Dr Dra Excmo Gral Lic Prof Rte Sr Sra Srta Sta Sto Tel Ud Uds Vd Vds adj admón av "
           "cap cta dcha doc ej esq etc izq núm pág págs ptas vol Apdo apdo Fil cm gr grs kg km mg mm ",
     NULL},
    {"it",
     LATIN
     "Adj Adm Adv Amn Arch Asst Avv Bart Bcc Bldg Brig Bros Capt Cc Cmdr Co Col Comdr Con Corp Cpl DR Dott Dr "
     "Drs Egr Ens Gen Geom Gov Hon Hosp Hr Id Ing Insp Lt MM MR MRS MS Maj Messrs Mlle Mme Mo Mons Mr Mrs Ms "
     "Msgr Op Ord Pfc Ph Prof Pvt RP RSVP Rag Rep Reps Res Rev Rif Rt Sen Sens Sfc Sgt Sig Sigg Soc Spett Sr St "
     "Supt Surg acc all banc corr dott ecc es fatt gg int lett ogg on post pp racc rev ric seg sgg ss tel v vs Nr Nos ",
     " No Art pp "},
    {"pt",
     LATIN SMALL ROMAN ROMAN_SMALL
     "Adj Adm Adv Art Ca Capt Cmdr Col Comdr Con Corp Cpl DR DRA Dr Dra Dras Drs Eng Enga Engas Engos Ex Exo "
     "Exmo Fig Gen Hosp Insp Lda MM MR MRS MS Maj Mrs Ms Msgr Op Ord Pfc Ph Prof Pvt Rep Reps Res Rev Rt Sen "
     "Sens Sfc Sgt Sr Sra Sras Srs Sto Supt Surg adj adm adv art cit col con corp cpl dr dra dras drs eng enga "
     "engas engos ex exo exmo fig op prof rev sr sra sras srs sto vs Nr Nos ",
     " No Art p pp "},
    {"nl",
     LATIN "bacc bc bgen dhr dr drs ds eint fa Fa fam gen genm ing ir jhr jkvr jr kand kol lgen lkol Lt maj Mej mevr "
           "Mme mr Mw plv prof ritm tint Vz bijv bijz bv ev nrs Nrs ",
     " Nr nr "},
    {"sv",
     LATIN
     "Å Ä Ö AB VG adv d dvs etc fil from iaf jfr jur kl kr mag mao mfl mm osv pga prop tex tom vs f kand lic s vol "
     "jan feb mar apr jun jul aug sep okt nov dec ",
     NULL},
    {"da",
     LATIN "adm adr afd afs alm ang anm ank apr art aug bd bem bet bla bldg ca cand cf chr dec dept dir div dr dvs eg "
           "ekskl eks eksp etc evt feb ff fhv fig fork forts fr frk ft fx gl gr hhv hr hrs ib id ifm incl inkl instr "
           "iht jan jf jfr jr jul jun kap kgl kl kld komp kr kst lb lic ltr maj mar max md mdr medl mfl mhp mht mia "
           "mill min mio mv nov nr obl obs okt omg opg osv pct pga pl pr prof pt red ref resp s sagl sek sekr sept "
           "sml sp st stk str stud sv tab tdl tel tlf u ugtl vedr vol vs årg årh Dr Hr Fr Prof Nr Kr Skt ",
     NULL},
    {"no",
     LATIN "adm adr art aug avd bd bl bla ca cand dir div dr dvs eks ekskl ev evt feb ff fig fork forts gen gl hr ifm "
           "iht inkl innk jan jf jfr jr kap kgl kl kr lic ltr max mfl mhp mht mill min mnd mrd mv nov nr obs okt osv "
           "pga pkt pr prof red ref resp sept sml st stk str tab tel tlf vedr vol vs årg Dr Hr Fr Prof Nr Kr St ",
     NULL},
    {"fi",
     LATIN
     "Å Ä Ö Mr Mrs Ms alik apul arkkit ass assist dipl dos ent esim evp fil ft huom ilm jatk kansaned kapt kenr kers "
     "kirjeenv kom komm konst korpr l luutn maj maist mm myöh neuv nimim nk nyk par po prof pääll res san siht suom "
     "säv t toht toim tuom ups v vänr vääp ylik ylil ylim yliop ",
     NULL},
    {"et", LATIN "Ä Ö fil maj mm prof t v ", NULL},
    {"cs",
     " Bc BcA Ing MUDr MVDr MgA Mgr JUDr PhDr RNDr PharmDr ThLic ThDr prof doc CSc DrSc PaedDr Dr PhMr DiS abt "
     "ad adj adv aj ak akt alch amer anat angl anglosas arab arch archit arg astr astrol att bás belg bibl biol "
     "boh bot bulh č čas čes čj děj dep dět dial dol dop dosl ekon epic eufem f fam fem fil film form fot fr "
     "franc fut fyz geogr geol geom germ gram hebr herald hist hl hovor hud hut chcsl chem ie imp impf ind "
     "indoevr inf instr interj iron it jap kanad klas kl kniž komp konj konkr kř kuch lat lék les lid lit "
     "liturg lok m mat maď meteor metr mj mld mysl n náb např něm násl neklas nesklon no ob obch obyč odd ojed "
     "opt p pas pejor pers pf pl plpf pol port pozn prep předl r rcsl refl reg rkp ř řec s samohl sg sl slang "
     "slov souhl spec sport srov st stfr střv stol subj subst superl sv špan švýc tech telev teol tj tis trans "
     "typogr tzn tzv var vedl verb voj vok vůb vulg výtv vztaž zahr zájm zast zejm zeměd zkr zř zvl apod atd "
     "atp popř resp ",
     NULL},
    {"sk",
     LATIN "Č Bc Mgr RNDr PharmDr PhDr JUDr PaedDr ThDr Ing MUDr MDDr MVDr Dr ThLic PhD ArtD DrSc CSs prof Obr obr č "
           "absol adj admin adr Adr adv advok afr ak akad akuz anat angl Angl arch archeol archit arg art astr astron "
           "atď austr bás belg bibl Bibl biol bot bud býv cest chem cirk csl čs čl dat det dial dopr ekon el "
           "elektrotech etc farm fem fil filoz franc fr fyz fyziol geod geogr geol geom germ gréc hebr herald hist "
           "hlav hosp hud imp impf indoeur inf inform instr int iron jap jaz jedn juhoamer kanad kapit kniž komp konj "
           "konkr kozmet krajč kuch lat lek lit log lok max maď mil min miner mn mod mytol náb napr nar nem než niž "
           "nom nár obch obyč ojed okr opt os part pejor pers pod polit polygr pomn popl potrav pož práv prep pren "
           "príd príp prísl psych resp reg rím skr sg soc spol st stor str subst sv tal tel telev trans typogr tzn "
           "tzv ul umel vedľ vulg výtvar zahr zám zast zn zool zried zv ap ",
     NULL},
    {"sl",
     LATIN
     "dr Dr itd itn d jan feb mar apr jun jul avg sep sept okt nov dec tj npr sl op gl oz ing dipl cf prim Jan Feb Mar Apr Jun "
     "Jul Avg Sep Sept Okt Nov Dec Tj Npr Op Gl Oz ",
     " št Št "},
    {"pl",
     LATIN
     "Ć Ś Ź Ż adw afr akad al Al am amer arch art Art artyst astr austr bałt bdb bł bm bp br bryg bryt centr "
     "ces chem chiń chir cyt czes dn dł dol doc dot dr dyr dyw egz ekon elektr farm fr gat gastr geogr geol "
     "gimn głęb gm godz górn gosp gr gram hist hiszp hr im in inż kl k kk kol kpt kr ks lek łac mec med mgr n "
     "nb np oo pl płk pn pol por prof przyp ps pt red rys ryc sp spółdz św stow szer tel tj tow tzn tzw ub ul "
     "ur wł woj ww zach zagr zam zast zał zm zn zob gen hab ang cd cdn czyt daw dop ds ew fot id jw kard niem o p pow poz "
     "pw reż st wyst zew Św śp Dr Prof Gen Inż Mgr Ks Płk Doc Por Hr Np Tzw Red Rys Ryc ",
     " nr Nr pkt str tab Tab ust par r s l "},
    {"ro", LATIN "dpdv etc șamd dl Dl d-na dvs Dvs pt Pt ", NULL},
    {"hu", LATIN "Á É Í Ó Ö Ő Ú Ü Ű Dr dr kb Kb vö Vö pl Pl ca Ca min Min max Max ún Ún prof Prof de De du Du Szt St ",
     " jan Jan Feb feb márc Márc ápr Ápr máj Máj jún Jún Júl júl aug Aug Szept szept okt Okt nov Nov dec Dec tel Tel Fax fax "},
    {"lt",
     LATIN "Č Š Ū Ž Dž Just doc dr Dr prof Prof akad inž habil kun gyd red adv aps apyg b bt buv dail dek dėst dir el "
           "etc faks fak gen gim gv įl kand kat kl kln kn koresp kpt kr kt l lot m mėn min mln mlrd mok mokyt moksl "
           "mot mstl n nr Nr orig p pan pav pavad pirm pl pr pss pvz r rš saviv sav skg skyr skv sk sp spec sr st str "
           "stud š šnek t tel tūkst up upl v vad ved vet vid vyr vv zool žr ž žml ",
     " No "},
    {"lv", LATIN "Ā Č Ē Ģ Ī Ķ Ļ Ņ Š Ū Ž dr Dr prof Prof akad inž sk vec ", " Nr "},
    {"is",
     LATIN "al ath au bls dr efn ef ennfr fél fl frh frl frt fsk fv f hdr hk hr hv hvk i ísl kg kk kl klst km kr kvk "
           "l lh lo m millj mín mm n nf nk nl no nt pfn pr r s samb samn samþ sbr sek sf sfn sign sk sl sn so st stk "
           "t tbl tl to þf þgf þt þm uppl v vb vl vsk y ",
     " no No nr Nr nR NR "},
    {"ga", LATIN "Á É Í Ó Ú Uacht Dr Co Cf cf r Chr ", " lch lgh uimh "},
    {"ca", LATIN "Dr Dra pàg p c av Sr Sra adm tel núm Sta Prof esq pl entl ed ptes ", NULL},
    {"el",
     " Α Β Γ Δ Ε Ζ Η Θ Ι Κ Λ Μ Ν Ξ Ο Π Ρ Σ Τ Υ Φ Χ Ψ Ω δ η θ κ λ μ ν π ρ σ τ φ πρβλ κλπ κτλ βλ δηλ αρ Αρ αριθ "
     "Αριθ άρθρ σελ εκ εκατ δισ Δρ καθ κα Κος κεφ εδ παρ Παρ άγ Πλ Ιαν Απρ Αυγ Δεκ υπ Υπ στ συν ",
     NULL},
    {"ru",
     " А Б В Г Д Е Ж З И Й К Л М Н О П Р С Т У Ф Х Ц Ч Ш Щ Ъ Ы Ь Э Ю Я A B C D E F G H I J K L M N O P Q R S T U "
     "V W X Y Z 0гг 1гг 2гг 3гг 4гг 5гг 6гг 7гг 8гг 9гг 0г 1г 2г 3г 4г 5г 6г 7г 8г 9г Xвв Vвв Iвв Lвв Mвв Cвв "
     "Xв Vв Iв Lв Mв Cв г гг в вв гл гос д доп др ед зам исп кв кол коп куб м макс мин мл млн млрд наб нач обл "
     "обр пер пл пос проф пр просп ред р руб сб св см соч ср ст стр тел тыс т тех ул уч физ ч чел шт экз "
     "е и к л н о п с х э тт га дм кг км мг мм бульв инд кап кл комн лиц общ ок туп Исп Тел ",
     NULL},
    {"zh", LATIN, " No Nr "},
};

static const prefixes *find_list(const char *language) {
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(all[i].language, language) == 0) return &all[i];
    }
    return NULL;
}

const prefixes *prefixes_of(const char *language) {
    const prefixes *p = find_list(language);
    return p ? p : &all[0];
}

bool prefixes_known(const char *language) { return find_list(language) != NULL; }

static bool is_among(const char *list, text_slice word) {
    if (!list || !word.n) return false;
    const char *end = list + strlen(list);
    for (const char *at = list; (at = memmem(at, (size_t)(end - at), word.bytes, word.n)); at++) {
        if (at[-1] == ' ' && at[word.n] == ' ') return true; /* lists begin and end with a space */
    }
    return false;
}

prefix_kind prefixes_find(const prefixes *p, text_slice word) {
    if (is_among(p->before_number, word)) return PREFIX_BEFORE_NUMBER;
    return is_among(p->always, word) ? PREFIX_ALWAYS : PREFIX_NONE;
}
